"""Every simulated machine is diagnosed as an expert would: the golden findings, and what must and must not be loud.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/machines`` writes the goldens anew; read them before they are committed.
"""

from pathlib import Path

import pytest

from splatfix.checks import Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.codec import to_json
from splatfix.core.files import dumps, write_json
from splatfix.facts import load
from splatfix.report import diagnosis
from tests.files import assert_golden
from tests.machines import HERE, NAMES, facts_of, raw_machines
from tests.screens import on_screen

# What is wrong with each machine, by an expert's word; every other one is healthy for its purpose.
ILL = {
    "a100-conda-without-nvcc": {"cuda-toolkit-missing": "warn", "host-gcc-too-old": "warn"},
    "card-without-driver": {"gpu-without-driver": "fail", "cuda-toolkit-missing": "warn"},
    "driver-without-reboot": {"driver-library-mismatch": "fail"},
    "gtx-1080-ti-dropped": {"torch-arch-unsupported": "fail"},
    "rtx-2080-ubuntu-package": {"host-gcc-too-new": "fail"},
    "rtx-3090-and-5090": {"no-kernel-image": "fail"},
    "rtx-4090-windows-vs2022": {"host-msvc-too-new": "fail"},
    "t4-container-without-gpu": {"driver-library-missing": "fail"},
    "t4-container-locked-down": {
        "container-device-closed": "fail",
        "container-memory-limit": "warn",
        "container-process-limit": "warn",
        "container-root-read-only": "warn",
        "container-shm-small": "warn",
    },
}


def test_every_machine_says_where_its_formats_come_from() -> None:
    assert len(NAMES) >= 14
    assert set(ILL) < set(NAMES)
    for name in NAMES:
        about = raw_machines()[name].machine
        assert len(about["source"]) > 40, name
        assert "\n" not in about["source"], name


@pytest.mark.parametrize("name", NAMES)
def test_findings_read_as_the_golden(name: str) -> None:
    facts = facts_of(name)
    found = [
        {
            "code": item.code,
            "status": item.status.value,
            "subject": item.subject,
            "summary": item.summary,
            "remedy": [step.line(windows=facts.machine.system == "windows") for step in item.remedy],
        }
        for item in run_checks(make_context(facts, Goal()))
    ]
    assert_golden(HERE / name / "findings.json", dumps(found))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_loud_is_what_is_ill(name: str) -> None:
    quiet = (Status.PASS, Status.SKIP)
    loud = {
        item.code: item.status.value
        for item in run_checks(make_context(facts_of(name), Goal()))
        if item.status not in quiet
    }
    assert loud == ILL.get(name, {})


@pytest.mark.parametrize("name", NAMES)
def test_saved_facts_are_the_same_facts(name: str, tmp_path: Path) -> None:
    facts = facts_of(name)
    write_json(tmp_path / "facts.json", to_json(facts))
    assert load(tmp_path / "facts.json") == facts


@pytest.mark.parametrize("name", NAMES)
def test_the_report_of_it_can_be_read(name: str) -> None:
    facts = facts_of(name)
    text = on_screen(diagnosis.show, facts, run_checks(make_context(facts, Goal())), width=120, verbose=True)
    for gpu in facts.machine.gpus.value or ():
        assert gpu.name.split("/")[0] in text


FACTS = [
    # name, first GPU, compute capability, CUDA level, open module, container, cores
    ("rtx-5080", "NVIDIA GeForce RTX 5080", "12.0", "12.9", True, None, 24),
    ("rtx-5060-ti-wsl2", "NVIDIA GeForce RTX 5060 Ti", "12.0", "12.9", None, None, 16),
    ("t4-container", "Tesla T4", "7.5", "12.2", False, "docker", 2),
    ("t4-container-without-gpu", "NVIDIA Tesla T4", "7.5", None, False, "docker", 2),
    ("jetson-agx-orin", "Orin", "8.7", "12.6", True, None, 12),
    ("gb10-dgx-spark", "NVIDIA GB10", "12.1", "13.0", True, None, 20),
    ("rtx-4090-windows-vs2022", "NVIDIA GeForce RTX 4090", "8.9", "12.6", None, None, 32),
    ("driver-without-reboot", "NVIDIA GeForce RTX 3080", "8.6", "12.8", False, None, 16),
]


@pytest.mark.parametrize(("name", "gpu", "cc", "cuda", "is_open", "container", "cores"), FACTS)
def test_facts_drawn_from_the_raw_inputs(
    name: str, gpu: str, cc: str, cuda: str | None, is_open: bool | None, container: str | None, cores: int
) -> None:
    machine = facts_of(name).machine
    first = (machine.gpus.value or ())[0]
    assert (first.name, first.cc) == (gpu, cc)
    assert machine.driver.value is not None
    assert (machine.driver.value.cuda, machine.driver.value.open_module) == (cuda, is_open)
    assert (machine.container, machine.resources.cores) == (container, cores)


def test_facts_of_single_machines() -> None:
    spark = (facts_of("gb10-dgx-spark").machine.gpus.value or ())[0]
    assert spark.memory_total == 120 * 2**30, (
        "one memory for CPU and GPU: NVML answers [N/A], and CUDA its size"
    )
    orin = facts_of("jetson-agx-orin").machine
    assert orin.model == "NVIDIA Jetson AGX Orin Developer Kit"
    assert orin.gpus.found_via == "libcuda", "NVML answers nothing there"
    wsl = facts_of("rtx-5060-ti-wsl2").machine
    assert wsl.wsl
    box = facts_of("t4-container").machine.resources
    assert box.memory_total == 12 * 2**30
    mac = facts_of("apple-m2-max").machine
    assert [(item.name, item.backend) for item in mac.adapters.value or ()] == [("Apple M2 Max", "metal")]
    assert mac.resources.memory_total == 64 * 2**30
    nouveau = (facts_of("card-without-driver").machine.gpus.value or ())[0]
    assert (nouveau.kernel_driver, nouveau.pci_id) == ("nouveau", "10de:2786")
    windows = facts_of("rtx-4090-windows-vs2022").machine
    assert windows.distribution == "Microsoft Windows 11 Pro 10.0.22631"
    studio = (windows.compilers.value or ())[0]
    assert (studio.version, studio.found_via) == ("19.40", ("vswhere: Visual Studio Community 2022 17.10.1",))
    (packaged,) = facts_of("rtx-2080-ubuntu-package").machine.toolkits.value or ()
    assert (packaged.root, packaged.missing, packaged.gcc_max) == ("/usr", (), 11)
    (pod,) = facts_of("a100-mig-kubernetes").machine.gpus.value or ()
    assert (pod.mig, pod.mig_devices) == (True, ("NVIDIA A100-SXM4-80GB MIG 3g.40gb",))
    assert facts_of("a100-mig-kubernetes").machine.container == "kubernetes"
    stale = facts_of("driver-without-reboot").machine.driver.value
    assert stale is not None
    assert (stale.version, stale.library_version, stale.nvml_error, stale.cuda_error) == (
        "570.195.03",
        "570.211.01",
        18,
        803,
    )
