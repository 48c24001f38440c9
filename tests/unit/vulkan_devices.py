# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of `vulkaninfo`: the parts that are read, and some that look like them. The sizes are from public reports of
these cards."""

GIB = 1 << 30
LOCAL = "MEMORY_HEAP_DEVICE_LOCAL_BIT"
# Sizes as RADV reports them: the card's memory, main memory that it may use, and what the CPU sees of the card's.
XTX = ((25753026560, 25000000000, 0, True), (33469472768, 33369472768, 0, False))
SMALL_BAR = (
    (8321499136, 7675416576, 0, True),
    (8573157376, 8434692096, 0, False),
    (268435456, 181755904, 0, True),
)
A770 = ((17079205888, 15371075584, 0, True), (25018519552, 21516666470, 0, False))


def heaps(sizes, budget=True):
    lines = [f"memoryHeaps: count = {len(sizes)}"]
    for number, (size, free, usage, local) in enumerate(sizes):
        lines += [f"\tmemoryHeaps[{number}]:", f"\t\tsize   = {size} (0x{size:x}) ({size / GIB:.2f} GiB)"]
        if budget is not None:
            lines += [
                f"\t\tbudget = {free if budget else 0} (0x{free:x}) (1.00 GiB)",
                f"\t\tusage  = {usage} (0x0) (0 B)",
            ]
        lines += [f"\t\tflags: count = {int(local)}", f"\t\t\t{LOCAL if local else 'None'}"]
    return [*lines, "memoryTypes: count = 1", "\tmemoryTypes[0]:", "\t\theapIndex     = 0"]


def device(index, name, sizes, kind="DISCRETE_GPU", slot=(0, 3, 0, 0), **more):
    """The lines of one device. more: vendor, driver, uuid, luid, half (16-bit storage), budget, limits, extensions."""
    limits = {"maxStorageBufferRange": "4294967295", "maxMemoryAllocationSize": "0xfffffffc", **more.get("limits", {})}
    budget = more.get("budget", True)
    extensions = ["VK_EXT_memory_budget"] if budget else []
    lines = [
        f"GPU{index}:",
        "VkPhysicalDeviceProperties:",
        "---------------------------",
        "\tapiVersion        = 1.4.309 (4210997)",
        f"\tvendorID          = {more.get('vendor', '0x1002')}",
        "\tdeviceID          = 0x744c",
        f"\tdeviceType        = PHYSICAL_DEVICE_TYPE_{kind}",
        f"\tdeviceName        = {name}",
        "",
        "VkPhysicalDeviceLimits:",
        *(f"\t{key} = {value}" for key, value in limits.items()),
        "",
        "VkPhysicalDeviceDriverProperties:",
        f"\tdriverID           = DRIVER_ID_{more.get('driver', 'MESA_RADV')}",
        "\tdriverName         = radv",
        "",
        "VkPhysicalDeviceIDProperties:",
        f"\tdeviceUUID      = {more.get('uuid', f'00000000-0300-0000-0000-00000000000{index}')}",
        "\tdriverUUID      = 414d442d-4d45-5341-2d44-525600000000",
        f"\tdeviceLUIDValid = {'true' if more.get('luid') else 'false'}",
        *([f"\tdeviceLUID      = {more['luid']}"] if more.get("luid") else []),
        "",
    ]
    names = ("pciDomain", "pciBus", "pciDevice", "pciFunction")
    lines += ["VkPhysicalDevicePCIBusInfoPropertiesEXT:"] if slot else []
    lines += [f"\t{key} = {value}" for key, value in zip(names, slot or ())]
    extensions += more.get("extensions", [])
    lines += ["", f"Device Extensions: count = {len(extensions)}", "----------"]
    lines += [f"\t{name}                       : extension revision 1" for name in extensions]
    lines += ["", "VkPhysicalDeviceMemoryProperties:", "=======", *heaps(sizes, budget or more.get("old", False))]
    lines += ["", "VkPhysicalDevice16BitStorageFeatures:"]
    return [*lines, f"\tstorageBuffer16BitAccess           = {'true' if more.get('half', True) else 'false'}", ""]


def printed(*devices):
    """The whole output. The list of layers names devices too."""
    return "\n".join(
        [
            "==========\nVULKANINFO\n==========\n\nVulkan Instance Version: 1.4.309\n\nLayers: count = 1",
            "VK_LAYER_MESA_device_select (Linux device selection layer) Vulkan version 1.4.303, layer version 1:",
            "\tDevices: count = 1\n\t\tGPU id = 0 (AMD Radeon RX 580 Series (RADV POLARIS10))\n",
            "Device Properties and Extensions:\n=================================",
            *(line for one in devices for line in one),
        ]
    )


LLVMPIPE = ((33000000000, 31000000000, 0, True),)


def llvmpipe(index, **more):
    words = {
        "vendor": "0x10005",
        "driver": "MESA_LLVMPIPE",
        "slot": None,
        "limits": {"maxStorageBufferRange": 134217728},
    }
    return device(index, "llvmpipe (LLVM 19.1.7, 256 bits)", LLVMPIPE, "CPU", **{**words, **more})


def nvidia(index, **more):
    words = {"vendor": "0x10de", "driver": "NVIDIA_PROPRIETARY", "slot": (0, 1, 0, 0)}
    return device(index, "NVIDIA GeForce RTX 3090", ((25757220864, 25366949888, 0, True),), **{**words, **more})
