# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What firewalld has to be told so that it lets heads in. Private to the collection."""


def changes(listed, ours, wanted, option=()):
    """Arguments of firewall-cmd, a list for each call, after which each wanted rule is in its zone, and none of ours is elsewhere.

    listed: what `firewall-cmd --list-all-zones` says; ours: rich rules as they are listed; wanted: {rule: zone}, of some of them; option: arguments
    of every call, as for the permanent configuration.
    """
    found = set()
    for block in listed.split("\n\n"):
        lines = [line.strip() for line in block.strip().splitlines()]
        if lines:
            # "public (active)"
            found.update((rule, lines[0].split()[0]) for rule in ours if rule in lines)
    needed = set(wanted.items())
    told = [(zone, "add", rule) for rule, zone in needed - found] + [(zone, "remove", rule) for rule, zone in found - needed]
    return [list(option) + ["--zone=" + zone, "--%s-rich-rule=%s" % (verb, rule)] for zone, verb, rule in sorted(told)]
