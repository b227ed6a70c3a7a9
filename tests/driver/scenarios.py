"""The simulated machines, and what a diagnosis must say of each."""

from dataclasses import replace
from typing import Any

from tests.driver import A100, RTX_3090, RTX_5090, Card, Instance, Scenario, h100s

BOTH = (RTX_5090, RTX_3090)
# NVML counts by bus, CUDA the fastest first: here they differ
SWAPPED = (replace(RTX_3090, bus="0000:01:00.0"), replace(RTX_5090, bus="0000:41:00.0"))
SMALL = Instance(0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-0000000a-1111-2222-3333-444444444444", 4864)
MEDIUM = Instance(0, "NVIDIA A100-SXM4-40GB MIG 2g.10gb", "MIG-0000000b-1111-2222-3333-444444444444", 9856, 3)
NO_UVM = ("nvidiactl", "nvidia0")
START = {"cuda-does-not-start": "fail"}
HIDDEN = {"no-gpu-visible": "fail"}


def visible(
    value: str, cards: tuple[Card, ...] = BOTH, *instances: tuple[Instance, ...], **more: Any
) -> Scenario:
    """A machine whose CUDA_VISIBLE_DEVICES has this value."""
    return Scenario(cards, *instances, variables={"CUDA_VISIBLE_DEVICES": value}, **more)


def without_driver(card: Card, kernel_driver: str, **more: Any) -> Scenario:
    """A card that another driver has, or none."""
    return Scenario(on_bus_alone=(replace(card, kernel_driver=kernel_driver),), **more)


SCENARIOS: dict[str, tuple[Scenario, dict[str, str], tuple[str, ...]]] = {
    # what is there, the loud findings, the targets
    "mixed GPUs": (Scenario(BOTH), {}, ("sm_120", "sm_86")),
    "first by number": (visible("0"), {}, ("sm_120",)),
    "second by number": (visible("1"), {}, ("sm_86",)),
    "by CUDA's number": (visible("0", SWAPPED), {"wrong-cuda-device": "warn"}, ("sm_120",)),
    "by bus number": (
        Scenario(SWAPPED, variables={"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        {},
        ("sm_86",),
    ),
    "by UUID": (visible(RTX_3090.uuid), {}, ("sm_86",)),
    "by short UUID": (visible("GPU-00003"), {}, ("sm_86",)),
    "hidden by -1": (visible("-1"), HIDDEN, ("sm_120", "sm_86")),
    "MIG": (Scenario((A100,), (SMALL, MEDIUM)), {}, ("sm_80",)),
    "MIG by UUID": (
        visible(MEDIUM.uuid, (RTX_3090, A100), (replace(SMALL, card=1), replace(MEDIUM, card=1))),
        {},
        ("sm_80",),
    ),
    "MIG in the old form": (
        visible(f"MIG-{A100.uuid}/3/0", (RTX_3090, A100), (replace(MEDIUM, card=1),)),
        {},
        ("sm_80",),
    ),
    "MIG that is gone": (visible(MEDIUM.uuid, (A100,), (SMALL,)), HIDDEN, ("sm_80",)),
    "MIG by number": (visible("MIG-0", (A100,), (SMALL,)), HIDDEN, ("sm_80",)),
    "MIG without instances": (Scenario((A100,)), {"nvidia-gpu-missing": "unknown", **START}, ("sm_80",)),
    "fabric manager": (Scenario(h100s(8), init=802), START, ("sm_90",)),
    "suspended": (Scenario((RTX_3090,), init=999), START, ("sm_86",)),
    "no nvidia-uvm": (Scenario((RTX_3090,), init=999, devices=NO_UVM, container=True), START, ("sm_86",)),
    "compat library": (Scenario((RTX_3090,), init=804), {"forward-compat-on-geforce": "fail"}, ("sm_86",)),
    "not initialized": (Scenario((RTX_3090,), init=3), START, ("sm_86",)),
    "busy": (Scenario((RTX_3090,), init=46), START, ("sm_86",)),
    "no device": (Scenario((RTX_3090,), init=100), START, ("sm_86",)),
    "invalid device": (Scenario((RTX_3090,), init=101), START, ("sm_86",)),
    "a code of the future": (Scenario((RTX_3090,), init=987), START, ("sm_86",)),
    "crash": (Scenario((RTX_3090,), cuda_does="crash"), START, ("sm_86",)),
    "version mismatch": (
        Scenario((RTX_3090,), nvml=18, init=803),
        {"driver-library-mismatch": "fail"},
        ("sm_86",),
    ),
    "driver of 2019": (Scenario((RTX_3090,), branch="R440", driver="440.33.01", cuda=10020), {}, ("sm_86",)),
    "one of eight": (
        Scenario(h100s(1), on_bus_alone=(*h100s(7)[1:], RTX_3090), container=True),
        {},
        ("sm_90",),
    ),
    "none of eight": (
        Scenario(on_bus_alone=h100s(8), container=True, libraries=(), devices=(), module=False),
        {"gpu-not-passed-to-container": "fail"},
        (),
    ),
    "one for a virtual machine": (
        Scenario((RTX_5090,), on_bus_alone=(replace(RTX_3090, kernel_driver="vfio-pci"),)),
        {},
        ("sm_120",),
    ),
    "nouveau": (
        without_driver(RTX_3090, "nouveau", module=False, devices=(), nvml=9),
        {"gpu-without-driver": "fail"},
        (),
    ),
    "libcuda alone": (visible("1", libraries=("libcuda.so.1",)), {}, ("sm_86",)),
    "NVML alone": (
        Scenario(BOTH, libraries=("libnvidia-ml.so.1",), container=True),
        START,
        ("sm_120", "sm_86"),
    ),
    "a lost GPU": (
        Scenario((RTX_5090, replace(RTX_3090, nvml=2, cuda=False))),
        {"nvidia-gpu-missing": "warn"},
        ("sm_120",),
    ),
    # what CUDA finds without the variable, and not the variable alone, says what is to blame
    "no device, and a value that is right": (visible("0", (RTX_3090,), init=100), START, ("sm_86",)),
    "no device, and hidden": (visible("-1", (RTX_3090,), init=100), {**START, **HIDDEN}, ("sm_86",)),
    "fabric manager, and hidden": (visible("-1", h100s(8), init=802), {**START, **HIDDEN}, ("sm_90",)),
    "version mismatch, and hidden": (
        visible("", (RTX_3090,), nvml=18, init=803),
        {"driver-library-mismatch": "fail", **HIDDEN},
        ("sm_86",),
    ),
    "version mismatch in a container": (
        Scenario((RTX_3090,), nvml=18, init=803, container=True),
        {"driver-library-mismatch": "fail"},
        (),
    ),
    "old driver, and hidden": (
        visible("-1", (RTX_3090,), driver="535.183.01", cuda=12020),
        HIDDEN,
        ("sm_86",),
    ),
    "names the lost GPU": (
        visible("1", (RTX_5090, replace(RTX_3090, nvml=2, cuda=False))),
        {"nvidia-gpu-missing": "warn", **HIDDEN},
        ("sm_120",),
    ),
    "the only GPU is lost": (
        Scenario((replace(RTX_3090, nvml=2, cuda=False),), init=100),
        {"nvidia-gpu-missing": "fail"},
        ("sm_86",),
    ),
    "MIG without instances, by number": (
        visible("0", (A100,)),
        {"nvidia-gpu-missing": "unknown", **START},
        ("sm_80",),
    ),
    "WSL2 without libcuda": (
        Scenario(wsl=True, libraries=(), devices=(), module=False),
        {"nvidia-gpu-missing": "unknown"},
        (),
    ),
    "a container that shows the host's driver": (
        Scenario(h100s(8), container=True, libraries=(), devices=()),
        {"driver-library-missing": "fail"},
        (),
    ),
    "one for a virtual machine, and no other": (
        without_driver(RTX_3090, "vfio-pci"),
        {"gpu-without-driver": "fail"},
        (),
    ),
    "for a virtual machine, without NVIDIA's driver": (
        without_driver(RTX_3090, "vfio-pci", module=False, devices=(), libraries=()),
        {"gpu-without-driver": "fail"},
        (),
    ),
    "nouveau beside the driver": (without_driver(RTX_3090, "nouveau"), {"gpu-without-driver": "fail"}, ()),
    "a card newer than the driver": (
        without_driver(RTX_5090, "", driver="550.144.03", cuda=12040),
        {"gpu-without-driver": "fail"},
        (),
    ),
    "Blackwell with the closed module": (
        without_driver(RTX_5090, "", closed_module=True),
        {"gpu-without-driver": "fail"},
        (),
    ),
    "closed to computing": (
        Scenario((replace(RTX_3090, compute_mode=2),)),
        {"gpu-not-free": "fail"},
        ("sm_86",),
    ),
    "exclusive, and in use": (
        Scenario((replace(RTX_3090, compute_mode=3),)),
        {"gpu-not-free": "warn"},
        ("sm_86",),
    ),
    "no right to the device files": (Scenario((RTX_3090,), nvml=4, init=100), START, ("sm_86",)),
    "no device files": (Scenario((RTX_3090,), nvml=9, init=100, devices=()), START, ("sm_86",)),
    "taken away from a container": (Scenario((RTX_3090,), nvml=999, init=100, container=True), START, ()),
    "a container, and no driver on its host": (
        without_driver(
            RTX_3090,
            "",
            container=True,
            libraries=(),
            devices=(),
            module=False,
            variables={"NVIDIA_VISIBLE_DEVICES": "all"},
        ),
        {"gpu-without-driver": "fail", "gpu-not-passed-to-container": "warn"},
        (),
    ),
    "the host's number in a container": (
        visible("3", h100s(1), on_bus_alone=h100s(8)[1:], container=True),
        HIDDEN,
        ("sm_90",),
    ),
    "a card that does not start": (Scenario(on_bus_alone=(RTX_5090,)), {"gpu-without-driver": "fail"}, ()),
    "one of eight by number": (visible("3", h100s(8)), {}, ("sm_90",)),
    "an index that is not there": (visible("9,0"), HIDDEN, ("sm_120", "sm_86")),
    "an index behind -1": (visible("0,-1,1"), {"no-gpu-visible": "warn"}, ("sm_120",)),
    "one GPU twice": (visible("0,0"), HIDDEN, ("sm_120", "sm_86")),
    "no UUID begins so": (visible("GPU-ffff"), HIDDEN, ("sm_120", "sm_86")),
}


UNSET = "unset CUDA_VISIBLE_DEVICES"
SET = "export CUDA_VISIBLE_DEVICES=0"
COMPARE = "Compare what the driver lists, with its MIG instances:"
FABRIC = "Install the fabric manager of exactly the driver's version (nvidia-fabricmanager), then:"
PASS_IT = "docker run --gpus all IMAGE"
ONE_INSTANCE = "sudo nvidia-smi mig -i 0 -cgi 0 -C"
OTHER_SYSTEM = "Work in the virtual machine that has it. To give it back to this system:"
WORDS = "Look for the driver's own words:"
ANEW = "Start the container anew."

# The first thing to do beside a healthy torch; nothing for what is not here.
FIRST: dict[str, str] = {
    "hidden by -1": UNSET,
    "MIG that is gone": UNSET,
    "MIG by number": UNSET,
    "MIG without instances": ONE_INSTANCE,
    "fabric manager": FABRIC,
    "suspended": "Reload the module; no program may use the GPU then:",
    "no nvidia-uvm": "sudo nvidia-modprobe -u -c=0",
    "compat library": (
        "Take the compat folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and upgrade the "
        "host's driver or take an image of an older CUDA."
    ),
    "not initialized": WORDS,
    "busy": "See mode and programs:",
    "no device": COMPARE,
    "invalid device": COMPARE,
    "a code of the future": "Look for the driver's own words, then reboot:",
    "crash": "Reinstall the NVIDIA driver, and take other copies of libcuda out of LD_LIBRARY_PATH.",
    "version mismatch": "Reboot the machine.",
    "driver of 2019": "upgrade the NVIDIA driver to 580 or newer, then reboot",
    "none of eight": PASS_IT,
    "nouveau": (
        "Install the NVIDIA driver with your system's package manager (it keeps nouveau off the "
        "card), then reboot."
    ),
    "NVML alone": "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
    "no device, and a value that is right": COMPARE,
    "no device, and hidden": COMPARE,
    "fabric manager, and hidden": FABRIC,
    "version mismatch, and hidden": "Reboot the machine.",
    "version mismatch in a container": (
        "Start the container anew: it holds the libraries of the driver that the host had before."
    ),
    "old driver, and hidden": UNSET,
    "names the lost GPU": UNSET,
    "the only GPU is lost": "sudo dmesg",
    "MIG without instances, by number": ONE_INSTANCE,
    "a container that shows the host's driver": PASS_IT,
    "one for a virtual machine, and no other": OTHER_SYSTEM,
    "for a virtual machine, without NVIDIA's driver": OTHER_SYSTEM,
    "nouveau beside the driver": (
        "Put 'blacklist nouveau' and 'options nouveau modeset=0' into /etc/modprobe.d/nouveau.conf, "
        "rebuild the initramfs, then reboot."
    ),
    "a card newer than the driver": "Upgrade the NVIDIA driver to 570 or newer, then reboot.",
    "Blackwell with the closed module": (
        "Install the driver with NVIDIA's open kernel modules (nvidia-open, nvidia-driver-*-open), "
        "then reboot."
    ),
    "closed to computing": "sudo nvidia-smi -i 0 -c DEFAULT",
    "no right to the device files": "Compare the rights of the device files with your user:",
    "no device files": "sudo nvidia-modprobe -u -c=0",
    "taken away from a container": ANEW,
    "a container, and no driver on its host": (
        "Install the NVIDIA driver on the host with your system's package manager, then reboot."
    ),
    "the host's number in a container": UNSET,
    "a card that does not start": "sudo dmesg",
    "an index that is not there": SET,
    "one GPU twice": SET,
    "no UUID begins so": UNSET,
}
