#!/usr/bin/env bash
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A FUSE share that hangs under the programs of the registry, in a container from the lab's image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
image=$(docker images --format '{{.Repository}}:{{.Tag}}' llama-lab | head -n 1)
[ -n "$image" ] || { echo "llama-lab: no image, one is needed: run make lab once" >&2; exit 1; }
exec docker run --rm --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined --entrypoint /bin/sh \
  -v "$PWD/plugins/module_utils:/code/llama_cluster:ro" -v "$PWD/tests/benchmarks/gateway:/bench:ro" -e PYTHONPATH=/code \
  -e PYTHONDONTWRITEBYTECODE=1 "$image" -c 'apt-get update -qq >/dev/null && apt-get install -y -qq bindfs >/dev/null 2>&1 && exec python3 /bench/hanging_share.py'
