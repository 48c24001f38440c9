# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards of AMD, Intel and NVIDIA of public reports: their files of sysfs, and outputs of vulkaninfo and of llama-server
--list-devices, shortened to what is read."""

from typing import NamedTuple, Union

from ansible_collections.thefermisea.llama_cluster.tests.unit.vulkan_devices import device, llvmpipe, printed

Printed = tuple[str, int]  # output of a program and its status
MIB = 1 << 20
NOTHING: Printed = ("", 127)


class Node(NamedTuple):
    """A node, and its outcome: [(device, MiB of it, whether it works in main memory)] or part of the sentence that
    refuses it."""

    name: str
    source: str  # the public report
    outcome: Union[list[tuple[str, int, bool]], str]
    cards: dict[str, dict] = {}  # {slot: files of sysfs}
    info: Printed = NOTHING  # of vulkaninfo
    listed: Printed = NOTHING  # of llama-server
    main_mib: int = 64000
    visible: Union[str, None] = None  # GGML_VK_VISIBLE_DEVICES
    accelerator: str = "vulkan"  # that auto chooses
    warning: str = ""  # part of it


def files(vendor, model, driver, node=0, **more):
    known = {"class": "0x030000", "vendor": vendor, "device": model, "driver": driver}
    return {**known, "drm": (f"card{node}", f"renderD{128 + node}"), **more}


def amdgpu(model, vram, gtt, chips="samsung", **more):
    """vram, gtt: MiB; chips: the maker of its memory, nothing for graphics within a processor."""
    sizes = {"mem_info_vram_total": str(vram * MIB), "mem_info_gtt_total": str(gtt * MIB)}
    used = {"mem_info_vram_used": str(100 * MIB), "mem_info_gtt_used": str(20 * MIB)}
    maker = {"mem_info_vram_vendor": chips} if chips else {}
    return files("0x1002", model, "amdgpu", **sizes, **used, **maker, **more)


def intel(model, driver, node=0, **more):
    return files("0x8086", model, driver, node, **more)


def tool(*devices, before=""):
    return before + printed(*devices), 0


def server(*devices, log=""):
    """devices: (name, MiB, MiB that are free)"""
    lines = [
        f"  Vulkan{number}: {name} ({total} MiB, {free} MiB free)" for number, (name, total, free) in enumerate(devices)
    ]
    return log + "Available devices:\n" + "\n".join(lines or ["  (none)"]) + "\n", 0


def pool(total):
    """Heaps of RADV for graphics within a processor: two thirds of its MiB are local to the device."""
    local = total * MIB * 2 // 3
    rest = total * MIB - local
    return ((rest, rest, 0, False), (local, local, 0, True))


def local(*sizes):
    return tuple((size, size, 0, True) for size in sizes)


APU = "INTEGRATED_GPU"
XTX = "AMD Radeon RX 7900 XTX (RADV NAVI31)"
HALO = "AMD Radeon Graphics (RADV GFX1151)"
BC250 = "AMD BC-250 (RADV GFX1013)"
ARC = "Intel(R) Arc(tm) A770 Graphics (DG2)"
XTX_MIB = 24560
NO_DRIVER = (
    "Cannot create Vulkan instance.\nERROR: [Loader Message] Code 0 : vkCreateInstance: Found no drivers!\n"
    "vulkaninfo.h:688:vkCreateInstance failed with ERROR_INCOMPATIBLE_DRIVER\n",
    1,
)
DENIED = (
    "ERROR: [../src/intel/vulkan/anv_device.c:842] Code 0 : Unable to open device /dev/dri/renderD128: Permission "
    "denied (VK_ERROR_INCOMPATIBLE_DRIVER)\n"
)

NODES = [
    Node(
        "Strix Halo with 108 GB of GTT",
        "geerlingguy/beowulf-ai-cluster #4, lemonade-sdk/llamacpp-rocm #9",
        [(HALO, 108512, True)],
        {"0000:c3:00.0": amdgpu("0x1586", 512, 108000, "")},
        tool(
            device(
                0,
                HALO,
                ((37927690240, 37857435648, 0, False), (75855388672, 75714867200, 0, True)),
                APU,
                (0, 0xC3, 0, 0),
            ),
            llvmpipe(1),
        ),
        main_mib=128000,
    ),
    Node(
        "Strix Halo with 96 GB set aside",
        "GpuZelenograd/memtest_vulkan #66",
        [(HALO, 98304 + 31800, True)],
        {"0000:c5:00.0": amdgpu("0x1586", 98304, 107520, "")},
        tool(device(0, HALO, pool(98304 + 107520), APU, (0, 0xC5, 0, 0))),
        main_mib=31800,
    ),
    Node(
        "Vega 8 with 82 GB of GTT",
        "ollama/ollama #15302",
        [("AMD Radeon Vega 8 Graphics (RADV RAVEN)", 84048, True)],
        {"0000:09:00.0": amdgpu("0x15d8", 2048, 82000, "unknown")},
        tool(
            device(
                0,
                "AMD Radeon Vega 8 Graphics (RADV RAVEN)",
                ((29376905216, 29367087104, 0, False), (58753810432, 58734174208, 0, True)),
                APU,
                (0, 9, 0, 0),
            )
        ),
        main_mib=94000,
    ),
    Node(
        "BC-250",
        "4claps/bc250-llama-cluster, its docs/troubleshooting",
        [(BC250, 14848, True)],
        {"0000:01:00.0": amdgpu("0x13fe", 512, 14336, "")},
        tool(device(0, BC250, pool(14848), APU, (0, 1, 0, 0))),
        server((BC250, 14848, 14700)),
        main_mib=15300,
    ),
    Node(
        "BC-250 with 12 GB set aside",
        "4claps/bc250-llama-cluster",
        [(BC250, 14848, True)],
        {"0000:01:00.0": amdgpu("0x13fe", 12288, 2560, "")},
        listed=server((BC250, 14848, 14700), log=f"ggml_vulkan: 0 = {BC250} (radv) | uma: 1 | fp16: 1 | bf16: 0\n"),
        main_mib=3900,
    ),
    Node(
        "Ryzen 5900HS before there is a build",
        "clbr/radeontop #163",
        [("amd 0x1638", 512 + 7695, True)],
        {"0000:04:00.0": amdgpu("0x1638", 512, 7695, "")},
        main_mib=15390,
    ),
    Node(
        "Radeon 780M",
        "likelovewant/ROCmLibs-for-gfx1103-AMD780M-APU #24",
        [("AMD Radeon 780M (RADV GFX1103_R1)", 4096 + 14000, True)],
        {"0000:c4:00.0": amdgpu("0x15bf", 4096, 14000, "")},
        tool(device(0, "AMD Radeon 780M (RADV GFX1103_R1)", pool(4096 + 14000), APU, (0, 0xC4, 0, 0)), llvmpipe(1)),
        server(("AMD Radeon 780M (RADV GFX1103_R1)", 4096 + 14000, 17000)),
        main_mib=28000,
    ),
    Node(
        "two RX 7900 XTX",
        "ggml-org/llama.cpp #6166",
        [(XTX, XTX_MIB, False)] * 2,
        {slot: amdgpu("0x744c", XTX_MIB, 32000) for slot in ("0000:03:00.0", "0000:0d:00.0")},
        tool(
            device(0, XTX, local(XTX_MIB * MIB), slot=(0, 3, 0, 0)),
            device(1, XTX, local(XTX_MIB * MIB), slot=(0, 13, 0, 0)),
            llvmpipe(2),
        ),
        server((XTX, XTX_MIB, 24000), (XTX, XTX_MIB, 24400)),
    ),
    Node(
        "RX 580 of which the CPU sees 256 MB",
        "ggml-org/llama.cpp #5441",
        [("AMD RADV POLARIS10", 8192, False)],
        {"0000:01:00.0": amdgpu("0x67df", 8192, 3942)},
        tool(
            device(
                0,
                "AMD RADV POLARIS10",
                (
                    (8321499136, 8310034432, 0, True),
                    (4133625856, 4124254208, 0, False),
                    (268435456, 256970752, 0, True),
                ),
                slot=(0, 1, 0, 0),
            )
        ),
    ),
    Node(
        "RX 570 whose GTT is as large as its memory",
        "Ricks-Lab/gpu-utils #118",
        [("amd 0x67df", 4096, False)],
        {"0000:01:00.0": amdgpu("0x67df", 4096, 4096)},
    ),
    Node(
        "RX 570 without sensors",
        "netdata/netdata #12616",
        [("amd 0x67df", 4096, False)],
        {"0000:01:00.0": amdgpu("0x67df", 4096, 16000, **{"gpu_busy_percent/not": "supported"})},
    ),
    Node(
        "card that sleeps",
        "Umio-Yasuno/amdgpu_top #90",
        [("amd 0x73ff", 8176, False)],
        {"0000:03:00.0": amdgpu("0x73ff", 8176, 16000, **{"power/runtime_status": "suspended"})},
    ),
    Node(
        "one card by AMDVLK and RADV",
        "GPUOpen-Drivers/AMDVLK #420, ggml-org/llama.cpp #7582",
        [(XTX, XTX_MIB, False)],
        {"0000:03:00.0": amdgpu("0x744c", XTX_MIB, 32000)},
        tool(
            device(0, "AMD Radeon RX 7900 XTX", local(XTX_MIB * MIB), driver="AMD_OPEN_SOURCE", uuid="00000000-03"),
            device(1, XTX, local(XTX_MIB * MIB), uuid="00000000-03"),
            llvmpipe(2),
        ),
        server((XTX, XTX_MIB, 24400)),
    ),
    Node(
        "one card twice by one driver",
        "KhronosGroup/Vulkan-Tools #1195",
        [(XTX, XTX_MIB, False)],
        {"0000:03:00.0": amdgpu("0x744c", XTX_MIB, 32000)},
        tool(*[device(number, XTX, local(XTX_MIB * MIB), uuid="00000000-03") for number in (0, 1)]),
    ),
    Node(
        "MI50 of which Vulkan reports a half",
        "oobabooga/llama-cpp-binaries #4",
        [("AMD Instinct MI50/MI60 (RADV VEGA20)", 16368, False)],
        {"0000:03:00.0": amdgpu("0x66a1", 32752, 64000)},
        tool(device(0, "AMD Instinct MI50/MI60 (RADV VEGA20)", local(16368 * MIB))),
        server(("AMD Instinct MI50/MI60 (RADV VEGA20)", 16368, 16300)),
    ),
    Node(
        "Arc A770 by xe",
        "ggml-org/llama.cpp #17628",
        [(ARC, 16288, False)],
        {"0000:03:00.0": intel("0x56a0", "xe")},
        tool(
            device(
                0, ARC, ((17079205888, 15371075584, 0, True), (25018519552, 21516666470, 0, False)), vendor="0x8086"
            ),
            llvmpipe(1),
        ),
        server((ARC, 16288, 14659)),
    ),
    Node(
        "Arc A770 by i915",
        "Syllo/nvtop #197",
        [(ARC, 16288, False)],
        {"0000:03:00.0": intel("0x56a0", "i915"), "0000:00:02.0": intel("0x4680", "i915", 1)},
        tool(device(0, ARC, local(17079205888), vendor="0x8086")),
        server((ARC, 16288, 14659)),
    ),
    Node(
        "Arc A750 whose driver reports no memory",
        "flightlessmango/MangoHud #1936",
        "nothing seen as the memory of GPU0, its size is needed: write llama_devices",
        {"0000:03:00.0": intel("0x56a1", "xe")},
    ),
    Node(
        "Arc Pro B70 before there is a build",
        "aristocratos/btop #1457",
        [("intel 0xe223", 32768, False)],
        {"0000:03:00.0": intel("0xe223", "xe", **{"tile0/physical_vram_size_bytes": str(32768 * MIB)})},
    ),
    Node(
        "graphics of a Core Ultra",
        "ggml-org/llama.cpp #16463, #16684",
        [("Intel(R) Arc(tm) Graphics (MTL)", 23859, True)],
        {"0000:00:02.0": intel("0x7d55", "i915")},
        tool(
            device(
                0,
                "Intel(R) Arc(tm) Graphics (MTL)",
                ((25018519552, 21516666470, 0, True),),
                APU,
                (0, 0, 2, 0),
                vendor="0x8086",
                driver="INTEL_OPEN_SOURCE_MESA",
            )
        ),
        main_mib=31800,
        accelerator="cpu",
    ),
    Node(
        "RTX 2070 by Vulkan",
        "ggml-org/llama.cpp #13324",
        [("NVIDIA GeForce RTX 2070", 8192, False)],
        {"0000:01:00.0": files("0x10de", "0x1f02", "nvidia")},
        tool(
            device(
                0,
                "NVIDIA GeForce RTX 2070",
                local(8192 * MIB),
                slot=(0, 1, 0, 0),
                vendor="0x10de",
                driver="NVIDIA_PROPRIETARY",
            )
        ),
        accelerator="cpu",
    ),
    Node(
        "more memory free than there is",
        "ggml-org/llama.cpp #17536, by CUDA",
        [("NVIDIA GeForce RTX 5090", 32106, False)],
        {"0000:01:00.0": files("0x10de", "0x2b85", "nvidia")},
        listed=server(("NVIDIA GeForce RTX 5090", 32106, 55372)),
        accelerator="cpu",
    ),
    Node(
        "RTX 4060 beside the processor's graphics",
        "ggml-org/llama.cpp #15793",
        [("NVIDIA GeForce RTX 4060 Laptop GPU", 7957, False)],
        {"0000:00:02.0": intel("0xa7a0", "i915"), "0000:01:00.0": files("0x10de", "0x28e0", "nvidia", 1)},
        tool(
            device(0, "NVIDIA GeForce RTX 4060 Laptop GPU", local(7957 * MIB), slot=(0, 1, 0, 0), vendor="0x10de"),
            device(1, "Intel(R) Iris(R) Xe Graphics (RPL-P)", local(23000 * MIB), APU, (0, 0, 2, 0), vendor="0x8086"),
        ),
        accelerator="cpu",
    ),
    Node(
        "RX 9060 XT at a Raspberry Pi",
        "geerlingguy/raspberry-pi-pcie-devices #741",
        [("AMD Radeon Graphics (RADV GFX1200)", 16304, False)],
        {"0001:03:00.0": amdgpu("0x7590", 16304, 8000)},
        tool(
            device(0, "AMD Radeon Graphics (RADV GFX1200)", local(16304 * MIB), slot=(1, 3, 0, 0)),
            device(1, "V3D 7.1.7.0", local(4096 * MIB), APU, None, vendor="0x14e4", driver="MESA_V3DV"),
        ),
        main_mib=16000,
    ),
    Node(
        "device of the CPU by its number",
        "ggml-org/llama.cpp #5299",
        [("llvmpipe (LLVM 19.1.7, 256 bits)", 31471, True)],
        {},
        tool(llvmpipe(0)),
        server(("llvmpipe (LLVM 19.1.7, 256 bits)", 31471, 29563)),
        visible="0",
        accelerator="cpu",
    ),
    Node(
        "render node without permission",
        "ValveSoftware/Proton #9008",
        "Vulkan has no device that llama.cpp uses",
        {"0000:00:02.0": intel("0xa7a0", "i915")},
        tool(llvmpipe(0), before=DENIED),
        server(log=DENIED),
        accelerator="cpu",
    ),
    Node(
        "MI300X of which only the software device is seen",
        "GpuZelenograd/memtest_vulkan #69",
        "Vulkan has no device that llama.cpp uses",
        {"0000:05:00.0": amdgpu("0x74a1", 196592, 900000, **{"class": "0x120000"})},
        tool(llvmpipe(0)),
        main_mib=1800000,
    ),
    Node(
        "program without a Vulkan driver",
        "ggml-org/llama.cpp #11493",
        [("amd 0x744c", XTX_MIB, False)],
        {"0000:03:00.0": amdgpu("0x744c", XTX_MIB, 32000)},
        NO_DRIVER,
        (
            "terminate called after throwing an instance of 'vk::IncompatibleDriverError'\n  what():  "
            "vk::createInstance: ErrorIncompatibleDriver\n",
            134,
        ),
        warning="llama-server failed with status 134: the plan has the devices of the kernel",
    ),
    Node(
        "FirePro W7000 by radeon",
        "clbr/radeontop #127",
        "the kernel has no card with a driver for Vulkan",
        {"0000:03:00.0": files("0x1002", "0x6808", "radeon")},
        NO_DRIVER,
        accelerator="cpu",
    ),
    Node(
        "display of a server",
        "KhronosGroup/Vulkan-Loader #979",
        "Vulkan has no device that llama.cpp uses",
        {"0000:06:00.0": files("0x1a03", "0x2000", "ast")},
        tool(llvmpipe(0)),
        accelerator="cpu",
    ),
]
