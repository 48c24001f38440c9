# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of nvidia-smi for cards, drivers and faults of public reports, in its own format and shortened to what is
read."""

from typing import NamedTuple, Union


class Output(NamedTuple):
    """An output and its outcome: [(card, MiB that a plan may use, whether they are main memory's)] or part of
    the sentence that refuses it."""

    name: str
    source: str  # the public report
    text: str
    outcome: Union[list[tuple[str, int, bool]], str]
    status: int = 0
    main_mib: int = 64000  # main memory of the node
    described: tuple = ()  # llama_devices


def card(name, total, used="0 MiB", free=None, number=0, **more):
    """One card; the driver keeps what is neither used nor free."""
    bus, uuid = more.pop("bus", "00000000:%02X:00.0" % (number + 1)), more.pop("uuid", "GPU-%08d-1111-2222" % number)
    inner = more.pop("inner", "")
    free = total if free is None else free
    return f"""
  <gpu id="{bus}">
    <product_name>{name}</product_name>
    <uuid>{uuid}</uuid>
    <pci>
      <pci_bus_id>{bus}</pci_bus_id>
    </pci>
    <fb_memory_usage>
      <total>{total}</total>
      <used>{used}</used>
      <free>{free}</free>
    </fb_memory_usage>{inner}
  </gpu>
"""


def log(*cards, driver="580.126.09", cuda="13.0", dtd=13, head=""):
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{dtd}.dtd">
<nvidia_smi_log>
  <timestamp>Thu Jan 15 09:30:00 2026</timestamp>{head}
  <driver_version>{driver}</driver_version>
  <cuda_version>{cuda}</cuda_version>
  <attached_gpus>{len(cards)}</attached_gpus>{"".join(cards)}
</nvidia_smi_log>
"""


def processes(*rows):
    """rows: (pid, name, memory)"""
    listed = "".join(
        f"""
      <process_info>
        <pid>{pid}</pid>
        <type>C</type>
        <process_name>{name}</process_name>
        <used_memory>{memory}</used_memory>
      </process_info>"""
        for pid, name, memory in rows
    )
    return f"""
    <processes>{listed}
    </processes>"""


def mig(*instances):
    """instances: (total, used, free) MiB"""
    devices = "".join(
        f"""
      <mig_device>
        <index>{index}</index>
        <gpu_instance_id>{index + 1}</gpu_instance_id>
        <compute_instance_id>0</compute_instance_id>
        <fb_memory_usage>
          <total>{total}</total>
          <used>{used}</used>
          <free>{free}</free>
        </fb_memory_usage>
      </mig_device>"""
        for index, (total, used, free) in enumerate(instances)
    )
    return f"""
    <mig_mode>
      <current_mig>Enabled</current_mig>
      <pending_mig>Enabled</pending_mig>
    </mig_mode>
    <mig_devices>{devices or "None"}
    </mig_devices>"""


def value(tag, text):
    return (
        "".join(f"\n\t\t<{one}>" for one in tag.split("/"))
        + text
        + "".join(f"</{one}>" for one in reversed(tag.split("/")))
    )


NVML = "Failed to initialize NVML: "
NA = "N/A"
LOST = "GPU is lost"
RESET = "[GPU requires reset]"
PERMISSION = "[Insufficient Permissions]"

NVIDIA = [
    Output(
        "GB10",
        "leptonai/gpud #1170, unslothai/unsloth #10703",
        log(card("NVIDIA GB10", NA, NA, bus="0000000F:01:00.0", inner=processes((114687, "python", "19135 MiB")))),
        [("NVIDIA GB10", 122548, True)],
        main_mib=122548,
    ),
    Output(
        "Jetson Thor",
        "rbonghi/jetson_stats #849",
        log(card("NVIDIA Thor", "[N/A]", "[N/A]", inner=processes((9, "ollama", "3891 MiB"))), driver="580.00"),
        [("NVIDIA Thor", 125772, True)],
        main_mib=125772,
    ),
    Output(
        "Jetson Orin",
        "henrygd/beszel #286, Chen-zexi/vllm-cli #11",
        log(card("Orin (nvgpu)", NA, NA, bus=NA, uuid=NA), driver="540.4.0", cuda="12.6", dtd=12),
        [("Orin (nvgpu)", 7620, True)],
        main_mib=7620,
    ),
    Output(
        "GB10 with llama_devices",
        "mostlygeek/llama-swap #782",
        log(card("NVIDIA GB10", NA, NA)),
        [("NVIDIA GB10", 110000, True)],
        main_mib=122548,
        described=({"name": "NVIDIA GB10", "memory_mib": 110000},),
    ),
    Output(
        "MIG instances",
        "utkuozdemir/nvidia_gpu_exporter, capture of an H100 with driver 590.48.01",
        log(
            card(
                "NVIDIA H100 80GB HBM3",
                "81559 MiB",
                "59 MiB",
                "81022 MiB",
                inner=mig(("40448 MiB", "26 MiB", "40423 MiB"), ("20096 MiB", "17 MiB", "20080 MiB")),
            ),
            driver="590.48.01",
        ),
        [("NVIDIA H100 80GB HBM3", 26 + 40423, False)],
    ),
    Output(
        "MIG beside a whole card",
        "XuehaiPan/nvitop #8",
        log(
            card("NVIDIA A100-SXM4-80GB", "81920 MiB"),
            card("NVIDIA A100-SXM4-80GB", "81920 MiB", number=1, inner=mig(("40192 MiB", "37 MiB", "40155 MiB"))),
            driver="510.47.03",
            dtd=11,
        ),
        [("NVIDIA A100-SXM4-80GB", 40192, False)],
    ),
    Output(
        "MIG in a virtual machine",
        "NVIDIA/dcgm-exporter #544",
        log(card("NVIDIA H100 NVL", NA, NA, inner=mig(("47616 MiB", "38 MiB", "47578 MiB"))), driver="535.230.02"),
        [("NVIDIA H100 NVL", 47616, False)],
    ),
    Output(
        "MIG without an instance",
        "wilicc/gpu-burn #36",
        log(card("NVIDIA A100-SXM4-40GB", "40960 MiB", inner=mig())),
        "MIG without an instance seen on GPU0",
    ),
    Output(
        "MIG in a container",
        "ollama/ollama #932, NVIDIA/nvidia-container-toolkit #842",
        log(card("NVIDIA A100-SXM4-40GB", PERMISSION, PERMISSION, inner=mig((PERMISSION, PERMISSION, PERMISSION)))),
        "[Insufficient Permissions] seen as the memory of GPU0, its size is needed",
    ),
    Output(
        "vGPU",
        "HSF/prmon #318",
        log(card("NVIDIA H100L-2-24C", "24576 MiB", "1 MiB", "22123 MiB", inner=value("clocks/sm_clock", NA))),
        [("NVIDIA H100L-2-24C", 22124, False)],
    ),
    Output(
        "vGPU that does not report its memory",
        "NVIDIA/dcgm-exporter #544, N/A of a card with memory of its own",
        log(card("GRID A100-20C", NA, NA)),
        "N/A seen as the memory of GPU0, its size is needed: write llama_devices",
    ),
    Output(
        "one card of two lost",
        "LSSI-ETH/plmfit #40",
        log(card("NVIDIA TITAN RTX", LOST, LOST), card("NVIDIA TITAN RTX", "24576 MiB", number=1)),
        [("NVIDIA TITAN RTX", 24576, False)],
    ),
    Output(
        "the only card lost",
        "LSSI-ETH/plmfit #40",
        log(card("NVIDIA TITAN RTX", LOST, LOST)),
        "GPU is lost seen on GPU0, a card that computes is needed: restart the node and look for Xid",
    ),
    Output(
        "card that requires a reset",
        "leptonai/gpud #1133",
        log(card("NVIDIA H100 80GB HBM3", RESET, RESET, inner=value("utilization/gpu_util", RESET))),
        "[GPU requires reset] seen on GPU0, a card that computes is needed: restart the node",
    ),
    Output(
        "fan with an error",
        "enkore/i3pystatus #850",
        log(card("NVIDIA GeForce RTX 3060", "12288 MiB", inner=value("fan_speed", "[Unknown Error]"))),
        [("NVIDIA GeForce RTX 3060", 12288, False)],
    ),
    Output(
        "no handle for a card",
        "NVIDIA/dcgm-exporter #604, XuehaiPan/nvitop #145",
        "Unable to determine the device handle for GPU 0000:09:00.0: Unknown Error\n",
        "a card fell off the bus: look for Xid in dmesg and restart the node",
        status=255,
    ),
    Output(
        "no handle, status 0",
        "xxd3vin/workspace #19",
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n",
        "a card fell off the bus: look for Xid in dmesg and restart the node",
    ),
    Output(
        "power draw with an error",
        "Azure/azhpc-diagnostics #77",
        log(
            card(
                "Tesla V100-PCIE-16GB",
                "16160 MiB",
                "593 MiB",
                "15567 MiB",
                inner=value("power_readings/power_draw", "ERR!"),
            ),
            driver="450.80.02",
            dtd=11,
        ),
        [("Tesla V100-PCIE-16GB", 16160, False)],
    ),
    Output(
        "power limit with an error",
        "Quake4/MindMiner #627",
        log(
            card(
                "GeForce RTX 2080 Ti", "11264 MiB", inner=value("power_readings/default_power_limit", "[Unknown Error]")
            ),
            driver="442.19",
            dtd=10,
        ),
        [("GeForce RTX 2080 Ti", 11264, False)],
    ),
    Output(
        "infoROM is corrupted",
        "microsoft/pai #3756, NVIDIA/gpu-operator #285",
        log(card("Tesla P100-PCIE-16GB", "16280 MiB"), driver="470.82.01", dtd=11)
        + "WARNING: infoROM is corrupted at gpu 0000:0B:00.0\n",
        [("Tesla P100-PCIE-16GB", 16280, False)],
        status=14,
    ),
    Output(
        "compute mode Prohibited",
        "choderalab/openmmtools #699",
        log(card("Tesla K40m", "11439 MiB", inner=value("compute_mode", "Prohibited"))),
        "compute mode Prohibited seen on GPU0, a card that computes is needed: run `nvidia-smi -i 0 -c DEFAULT`",
    ),
    Output(
        "compute mode Exclusive_Process",
        "NVIDIA/DIGITS #2005",
        log(card("Tesla K40m", "11439 MiB", inner=value("compute_mode", "Exclusive_Process")), driver="375.26", dtd=9),
        [("Tesla K40m", 11439, False)],
    ),
    Output(
        "driver 610 with comments",
        "AstraExt/astra-monitor #227, Jaded-Encoding-Thaumaturgy/vs-jetpack #297",
        log(
            card("NVIDIA GeForce RTX 3090", "24576 MiB", inner="\n\t\t<!-- Deprecated -->" + value("fan_speed", "0 %")),
            driver="610.43.02",
            cuda="13.3",
            head="\n\t<!-- Deprecated; will be removed in CUDA 14.0. Use kmd_version instead -->",
        ),
        [("NVIDIA GeForce RTX 3090", 24576, False)],
    ),
    Output(
        "driver 580",
        "netdata/netdata, test data of an RTX PRO 6000 with driver 580",
        log(card("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "97887 MiB", "2 MiB", "97251 MiB")),
        [("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97253, False)],
    ),
    Output(
        "driver 470 with text beside clocks",
        "lollipopkit/flutter_server_box #286",
        log(
            card(
                "NVIDIA RTX A6000",
                "48682 MiB",
                "47123 MiB",
                "1559 MiB",
                inner=value(
                    "supported_clocks/supported_mem_clock", "5001 MHz\n" + value("supported_graphics_clock", "9 MHz")
                ),
            ),
            driver="470.182.03",
            cuda="11.4",
            dtd=11,
        ),
        [("NVIDIA RTX A6000", 48682, False)],
    ),
    Output(
        "driver 418",
        "a0s/nvidia-smi-exporter #1",
        log(card("Quadro P2000", "5059 MiB", bus="00000000:04:00.0"), driver="418.56", cuda="10.1", dtd=10),
        [("Quadro P2000", 5059, False)],
    ),
    Output(
        "driver 450, no fan",
        "utkuozdemir/nvidia_gpu_exporter #68",
        log(card("GeForce RTX 2080 Ti", "11019 MiB", inner=value("fan_speed", NA)), driver="450.57", dtd=11),
        [("GeForce RTX 2080 Ti", 11019, False)],
    ),
    Output(
        "driver 430, four cards",
        "a0s/nvidia-smi-exporter #1",
        log(*[card("GeForce GTX 1080", "8116 MiB", number=number) for number in range(4)], driver="430.26", dtd=10),
        [("GeForce GTX 1080", 8116, False)] * 4,
    ),
    Output(
        "driver 390",
        "1Panel-dev/1Panel #9504",
        log(card("GeForce 410M", "459 MiB"), driver="390.157", dtd=9).replace(
            "<cuda_version>13.0</cuda_version>\n", ""
        ),
        [("GeForce 410M", 459, False)],
    ),
    Output(
        "driver 340",
        "netdata/netdata #2759",
        log(card("GeForce 8800 GT", "511 MiB", bus="0000:01:00.0"), driver="340.102", cuda=NA, dtd=6),
        [("GeForce 8800 GT", 511, False)],
    ),
    Output(
        "versions of driver and library differ",
        "anderskm/gputil #55",
        NVML + "Driver/library version mismatch\nNVML library version: 535.161\n",
        "the kernel still runs the driver of before an update: reboot the node",
        status=18,
    ),
    Output(
        "no device found",
        "NVIDIA/NVSentinel #155",
        "No devices were found\n",
        "the driver runs and found no GPU that works: see lspci and dmesg",
        status=6,
    ),
    Output(
        "kernel module not loaded",
        "GoogleCloudPlatform/compute-gpu-installation #18",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.\n\n",
        "its kernel module is not loaded: load it with modprobe nvidia",
        status=9,
    ),
    Output(
        "no library",
        "projectbluefin/dakota #373",
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
        "Driver is properly installed and present in your system.\n",
        "libraries of the driver are missing: install all packages of one driver version",
        status=12,
    ),
    Output(
        "no permission",
        "NVIDIA/nvidia-container-toolkit #210",
        NVML + "Insufficient Permissions\n",
        "/dev/nvidiactl or /dev/nvidia0 cannot be opened",
        status=4,
    ),
    Output(
        "container that lost its devices",
        "utkuozdemir/nvidia_gpu_exporter #110",
        NVML + "Unknown Error\n",
        "the devices cannot be used: restart the container",
        status=255,
    ),
    Output(
        "blocked by the operating system",
        "zhenruyan/WSL-libre-linux-kernel #5",
        NVML + "GPU access blocked by the operating system\n"
        "Failed to properly shut down NVML: GPU access blocked by the operating system\n",
        "failed with status 17: Failed to initialize NVML: GPU access blocked by the operating system",
        status=17,
    ),
    Output("no output", "microsoft/pai #2999", "", "printed no XML (no element found: line 1, column 0): no message"),
]
