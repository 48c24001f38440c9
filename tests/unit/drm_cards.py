# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards in a copy of sysfs."""


def add_card(sys, slot, files):
    """files: {name: text} below the device; driver: its name; drm: its device nodes."""
    path = sys / "bus/pci/devices" / slot
    path.mkdir(parents=True)
    (path / "driver").symlink_to("/nowhere/drivers/" + files["driver"])
    for name in files.get("drm", ()):
        (path / "drm" / name).mkdir(parents=True)
    for name, text in files.items():
        if name not in ("driver", "drm"):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text + "\n")
    return path
