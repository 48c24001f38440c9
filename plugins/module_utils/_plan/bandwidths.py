# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory bandwidth of NVIDIA's cards by the name that nvidia-smi prints. Private to the collection.

GB/s, from NVIDIA's data sheets. They weigh unlike cards against each other. Laptop GPUs and cards whose figure is not
certain are left out; some names stand for cards with unlike memory (GTX 1050, 1650, RTX 3050, 3060, 3060 Ti, 3080,
4070), the first one made counts. Where it matters, the inventory's llama_devices has `bandwidth`.
"""

from __future__ import annotations

import re

CARDS = {
    # GeForce
    "GTX 1050": 112,
    "GTX 1050 Ti": 112,
    "GTX 1060 3GB": 192,
    "GTX 1060 5GB": 160,
    "GTX 1060 6GB": 192,
    "GTX 1070": 256,
    "GTX 1070 Ti": 256,
    "GTX 1080": 320,
    "GTX 1080 Ti": 484,
    "GTX 1650": 128,
    "GTX 1650 SUPER": 192,
    "GTX 1660": 192,
    "GTX 1660 SUPER": 336,
    "GTX 1660 Ti": 288,
    "TITAN X (Pascal)": 480,
    "TITAN Xp": 548,
    "TITAN V": 653,
    "TITAN RTX": 672,
    "RTX 2060": 336,
    "RTX 2060 SUPER": 448,
    "RTX 2070": 448,
    "RTX 2070 SUPER": 448,
    "RTX 2080": 448,
    "RTX 2080 SUPER": 496,
    "RTX 2080 Ti": 616,
    "RTX 3050": 224,
    "RTX 3050 6GB": 168,
    "RTX 3060": 360,
    "RTX 3060 Ti": 448,
    "RTX 3070": 448,
    "RTX 3070 Ti": 608,
    "RTX 3080": 760,
    "RTX 3080 Ti": 912,
    "RTX 3090": 936,
    "RTX 3090 Ti": 1008,
    "RTX 4060": 272,
    "RTX 4060 Ti": 288,
    "RTX 4070": 504,
    "RTX 4070 SUPER": 504,
    "RTX 4070 Ti": 504,
    "RTX 4070 Ti SUPER": 672,
    "RTX 4080": 717,
    "RTX 4080 SUPER": 736,
    "RTX 4090": 1008,
    "RTX 4090 D": 1008,
    "RTX 5050": 320,
    "RTX 5060": 448,
    "RTX 5060 Ti": 448,
    "RTX 5070": 672,
    "RTX 5070 Ti": 896,
    "RTX 5080": 960,
    "RTX 5090": 1792,
    "RTX 5090 D": 1792,
    # Workstations
    "Quadro P4000": 243,
    "Quadro P5000": 288,
    "Quadro P6000": 432,
    "Quadro GV100": 870,
    "Quadro RTX 4000": 416,
    "Quadro RTX 5000": 448,
    "Quadro RTX 6000": 672,
    "Quadro RTX 8000": 672,
    "RTX A400": 96,
    "RTX A1000": 192,
    "RTX A2000": 288,
    "RTX A4000": 448,
    "RTX A4500": 640,
    "RTX A5000": 768,
    "RTX A5500": 768,
    "RTX A6000": 768,
    "RTX 2000 Ada Generation": 224,
    "RTX 4000 SFF Ada Generation": 280,
    "RTX 4000 Ada Generation": 360,
    "RTX 4500 Ada Generation": 432,
    "RTX 5000 Ada Generation": 576,
    "RTX 5880 Ada Generation": 960,
    "RTX 6000 Ada Generation": 960,
    "RTX PRO 2000 Blackwell": 288,
    "RTX PRO 4000 Blackwell SFF Edition": 432,
    "RTX PRO 4000 Blackwell": 672,
    "RTX PRO 4500 Blackwell": 896,
    "RTX PRO 5000 Blackwell": 1344,
    "RTX PRO 6000 Blackwell Workstation Edition": 1792,
    "RTX PRO 6000 Blackwell Max-Q Workstation Edition": 1792,
    # Data centres
    "T4": 320,
    "P4": 192,
    "P40": 346,
    "P100-PCIE-12GB": 549,
    "P100-PCIE-16GB": 732,
    "P100-SXM2-16GB": 732,
    "V100-PCIE-16GB": 900,
    "V100-PCIE-32GB": 900,
    "V100-SXM2-16GB": 900,
    "V100-SXM2-32GB": 900,
    "V100S-PCIE-32GB": 1134,
    "A2": 200,
    "A10": 600,
    "A10G": 600,
    "A16": 200,
    "A30": 933,
    "A40": 696,
    "A100-PCIE-40GB": 1555,
    "A100-SXM4-40GB": 1555,
    "A100 80GB PCIe": 1935,
    "A100-SXM-80GB": 2039,
    "A100-SXM4-80GB": 2039,
    "A800 80GB PCIe": 1935,
    "A800-SXM4-80GB": 2039,
    "L4": 300,
    "L20": 864,
    "L40": 864,
    "L40S": 864,
    "H100 PCIe": 2000,
    "H100 NVL": 3900,
    "H100 80GB HBM3": 3350,
    "H800 PCIe": 2000,
    "H800": 3350,
    "H20": 4000,
    "H200": 4800,
    "H200 NVL": 4800,
    "GH200": 4000,
    "GH200 144G HBM3e": 4900,
    "B200": 8000,
    # Cards that work in main memory
    "GB10": 273,
    "Thor": 273,
}

# Words before and behind a card's name. "A6000" and "3090" leave out RTX. Quadro is part of a
# name, or stands before one.
_MAKERS = r"^((NVIDIA|Tesla|GeForce)\s+)+"
_ENDINGS = r"(\s+Generation)?(\s+\d+GB)?\Z"
_KNOWN = {re.sub(r"\s+generation\Z", "", card.lower()): speed for card, speed in CARDS.items()}


def bandwidth(name: str | None) -> int | None:
    """GB/s of a card's memory, None where it is not known. Only a whole name counts: an RTX 3060 Ti, a 4090 D or a
    Laptop GPU is a card of its own."""
    card = re.sub(_MAKERS, "", " ".join(str(name or "").split()), flags=re.I).lower()
    card = re.sub(r"(\d)\s?gi?b\Z", r"\1gb", card)
    short = re.sub(_ENDINGS, "", card, flags=re.I)
    names = (card, short, "rtx " + short, re.sub(r"^quadro\s+", "", short))
    return next((_KNOWN[one] for one in names if one in _KNOWN), None)
