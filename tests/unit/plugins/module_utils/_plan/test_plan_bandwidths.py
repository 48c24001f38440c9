# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.bandwidths import CARDS, bandwidth


@pytest.mark.parametrize(
    "name, speed",
    [
        # As nvidia-smi prints them.
        ("NVIDIA GeForce RTX 3060", 360),
        ("NVIDIA GeForce RTX 3060 Ti", 448),
        ("NVIDIA GeForce RTX 3090", 936),
        ("NVIDIA GeForce RTX 3090 Ti", 1008),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 672),
        ("NVIDIA GeForce RTX 4090", 1008),
        ("NVIDIA GeForce RTX 5090", 1792),
        ("GeForce GTX 1080 Ti", 484),
        ("NVIDIA GeForce GTX 1060 6GB", 192),
        ("NVIDIA RTX A6000", 768),
        ("NVIDIA RTX 6000 Ada Generation", 960),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 1792),
        ("NVIDIA A10", 600),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("NVIDIA L4", 300),
        ("NVIDIA L40", 864),
        ("NVIDIA L40S", 864),
        ("Tesla T4", 320),
        ("Tesla P40", 346),
        ("Tesla V100S-PCIE-32GB", 1134),
        ("Tesla V100-SXM2-32GB", 900),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H200", 4800),
        ("NVIDIA GH200 480GB", 4000),
        ("NVIDIA GH200 144G HBM3e", 4900),
        ("NVIDIA Thor", 273),
        ("NVIDIA GeForce GTX 1050", 112),
        ("NVIDIA GeForce GTX 1050 Ti", 112),
        ("NVIDIA GeForce GTX 1650", 128),
        ("NVIDIA GeForce GTX 1650 SUPER", 192),
        ("NVIDIA GeForce GTX 1660", 192),
        ("NVIDIA GeForce GTX 1660 SUPER", 336),
        ("NVIDIA GeForce GTX 1660 Ti", 288),
        ("NVIDIA TITAN X (Pascal)", 480),
        ("NVIDIA TITAN V", 653),
        ("NVIDIA GeForce RTX 3050", 224),
        ("NVIDIA GeForce RTX 3050 6GB", 168),
        ("Quadro RTX 4000", 416),
        ("Quadro RTX 5000", 448),
        ("Quadro RTX 6000", 672),
        ("NVIDIA Quadro RTX 8000", 672),
        ("Quadro P6000", 432),
        ("Quadro RTX A6000", 768),
        ("NVIDIA RTX 5880 Ada Generation", 960),
        ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", 432),
        ("NVIDIA A10G", 600),
        ("NVIDIA A800-SXM4-80GB", 2039),
        ("NVIDIA L20", 864),
        ("Tesla P4", 192),
        # As people write them.
        ("RTX 3050 8GB", 224),
        ("RTX 3050 6 GiB", 168),
        ("rtx 3090", 936),
        ("3090", 936),
        ("RTX 3090 24GB", 936),
        ("A6000", 768),
        ("RTX 6000 Ada", 960),
        # A card of another memory is another card.
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090 D v2", None),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", None),
        ("Quadro RTX 5000 with Max-Q Design", None),
        ("RTX 6000", None),
        ("NVIDIA A100", None),
        ("main", None),
        ("GPU", None),
        ("", None),
        (None, None),
    ],
)
def test_only_a_whole_name_counts(name, speed):
    assert bandwidth(name) == speed


# From data sheets: bits of the bus and Gbit/s of each.
BUSES = {
    (64, 12): "RTX A400",
    (96, 14): "RTX 3050 6GB",
    (128, 7): "GTX 1050, GTX 1050 Ti",
    (128, 8): "GTX 1650",
    (128, 12): "GTX 1650 SUPER, RTX A1000",
    (128, 12.5): "A2, A16",
    (128, 14): "RTX 3050, RTX 2000 Ada Generation",
    (128, 17): "RTX 4060",
    (128, 18): "RTX 4060 Ti, RTX PRO 2000 Blackwell",
    (128, 20): "RTX 5050",
    (128, 28): "RTX 5060, RTX 5060 Ti",
    (160, 8): "GTX 1060 5GB",
    (160, 14): "RTX 4000 SFF Ada Generation",
    (160, 18): "RTX 4000 Ada Generation",
    (192, 8): "GTX 1060 3GB, GTX 1060 6GB, GTX 1660",
    (192, 12): "GTX 1660 Ti, RTX A2000",
    (192, 12.5): "L4",
    (192, 14): "GTX 1660 SUPER, RTX 2060",
    (192, 15): "RTX 3060",
    (192, 18): "RTX 4500 Ada Generation, RTX PRO 4000 Blackwell SFF Edition",
    (192, 21): "RTX 4070, RTX 4070 SUPER, RTX 4070 Ti",
    (192, 28): "RTX 5070, RTX PRO 4000 Blackwell",
    (256, 6): "P4",
    (256, 7.6): "Quadro P4000",
    (256, 8): "GTX 1070, GTX 1070 Ti",
    (256, 9): "Quadro P5000",
    (256, 10): "GTX 1080, T4",
    (256, 13): "Quadro RTX 4000",
    (256, 14): "RTX 2060 SUPER, RTX 2070, RTX 2070 SUPER, RTX 2080, RTX 3060 Ti, RTX 3070, Quadro RTX 5000, RTX A4000",
    (256, 15.5): "RTX 2080 SUPER",
    (256, 18): "RTX 5000 Ada Generation",
    (256, 19): "RTX 3070 Ti",
    (256, 21): "RTX 4070 Ti SUPER",
    (256, 22.4): "RTX 4080",
    (256, 23): "RTX 4080 SUPER",
    (256, 28): "RTX 5070 Ti, RTX PRO 4500 Blackwell",
    (256, 30): "RTX 5080",
    (320, 16): "RTX A4500",
    (320, 19): "RTX 3080",
    (352, 11): "GTX 1080 Ti",
    (352, 14): "RTX 2080 Ti",
    (384, 7.2): "P40",
    (384, 9): "Quadro P6000",
    (384, 10): "TITAN X (Pascal)",
    (384, 11.41): "TITAN Xp",
    (384, 12.5): "A10, A10G",
    (384, 14): "TITAN RTX, Quadro RTX 6000, Quadro RTX 8000",
    (384, 14.5): "A40",
    (384, 16): "RTX A5000, RTX A5500, RTX A6000",
    (384, 18): "L20, L40, L40S",
    (384, 19): "RTX 3080 Ti",
    (384, 19.5): "RTX 3090",
    (384, 20): "RTX 5880 Ada Generation, RTX 6000 Ada Generation",
    (384, 21): "RTX 3090 Ti, RTX 4090, RTX 4090 D",
    (384, 28): "RTX PRO 5000 Blackwell",
    (512, 28): "RTX 5090, RTX 5090 D, RTX PRO 6000 Blackwell Workstation Edition, "
    "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    (3072, 1.43): "P100-PCIE-12GB",
    (3072, 1.7): "TITAN V",
    (3072, 2.43): "A30",
    (4096, 1.43): "P100-PCIE-16GB, P100-SXM2-16GB",
    (4096, 1.7): "Quadro GV100",
    (4096, 1.758): "V100-PCIE-16GB, V100-PCIE-32GB, V100-SXM2-16GB, V100-SXM2-32GB",
    (4096, 2.214): "V100S-PCIE-32GB",
    (5120, 2.43): "A100-PCIE-40GB, A100-SXM4-40GB",
    (5120, 3.024): "A100 80GB PCIe, A800 80GB PCIe",
    (5120, 3.186): "A100-SXM-80GB, A100-SXM4-80GB, A800-SXM4-80GB",
}
# Data sheets give only round figures.
ROUND = {
    **{"H100 PCIe": 2000, "H100 NVL": 3900, "H100 80GB HBM3": 3350, "H800 PCIe": 2000, "H800": 3350},
    **{"H20": 4000, "H200": 4800, "H200 NVL": 4800, "B200": 8000, "GB10": 273},
    **{"GH200": 4000, "GH200 144G HBM3e": 4900, "Thor": 273},
}


@pytest.mark.parametrize(("bus", "names"), BUSES.items())
def test_bandwidth_is_width_of_bus_times_its_rate(bus, names):
    bits, rate = bus
    assert {name: CARDS[name] for name in names.split(", ")} == dict.fromkeys(names.split(", "), round(bits * rate / 8))


def test_each_other_card_has_a_round_figure():
    listed = {name for names in BUSES.values() for name in names.split(", ")}
    assert {name: speed for name, speed in CARDS.items() if name not in listed} == ROUND
