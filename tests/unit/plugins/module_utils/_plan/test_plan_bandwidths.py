# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.bandwidths import bandwidth


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
