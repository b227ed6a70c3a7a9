"""Architectures: spelling, rows, and whose code runs on whom."""

import itertools
import re

import pytest

from splatfix.knowledge import parse_target, parse_targets
from splatfix.knowledge.archs import (
    Arch,
    arch_info,
    cubin_runs_on,
    family_of,
    known_archs,
    ptx_runs_on,
    toolkit_supports,
)

KNOWN = known_archs()


def A(text: str) -> Arch:
    return Arch.parse(text)


class TestSpelling:
    @pytest.mark.parametrize("arch", KNOWN, ids=str)
    @pytest.mark.parametrize("letter", ["", "a", "f"])
    def test_every_spelling_reads_back(self, arch: Arch, letter: str) -> None:
        full = Arch(arch.major, arch.minor, letter)
        for text in (full.sm, full.compute, full.cc, f"{full.number}{letter}", f"sm{full.number}{letter}"):
            assert Arch.parse(text) == full

    @pytest.mark.parametrize(
        "text", ["12.0+PTX", "", "sm_", "1", "1200", "12.00", "sm_120x", "sm-120", "Blackwell", "lto_90"]
    )
    def test_anything_else_is_an_error(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a GPU architecture"):
            Arch.parse(text)


TARGETS = {
    "12.0": "sm_120|12.0|120|sm120|compute_120|SM_120| 12.0 |sm-120|cc 12.0|compute capability 12.0|gb202|RTX 5080|rtx5080|"
    "RTX-5080|rtx_5080|5080|5090|5080ti|RTX 5070 Ti|5070ti super|50xx|RTX 50 series|rtxpro6000|pro 6000|"
    "NVIDIA GeForce RTX 5090|GeForceRTX5090|NVIDIA RTX PRO 6000 Blackwell Server Edition|"
    "NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU|RTX PRO 500",
    "12.1": "spark|NVIDIA GB10",
    "10.3": "blackwell ultra|NVIDIA GB300",
    "10.0": "NVIDIA B200",
    "9.0": "hopper|H200|h100|9|90|sm90|compute_90|NVIDIA H100 80GB HBM3|NVIDIA GH200 480GB",
    "9.0a": "90a|sm_90a",
    "8.9": "Ada Lovelace|ada|6000 ada|6000ada|L40s|4090 laptop|4090|rtx4090|NVIDIA GeForce RTX 4090 Laptop GPU|"
    "NVIDIA RTX 4000 Ada Generation|NVIDIA L4|NVIDIA L40S|NVIDIA L20|NVIDIA RTX 4000 SFF Ada Generation|"
    "NVIDIA RTX 3500 Ada Generation Laptop GPU|NVIDIA RTX 500 Ada Generation Laptop GPU|RTX 5880 Ada",
    "8.7": "orin-nano|Orin|Jetson Orin Nano",
    "8.6": "a6000|rtxa4000|3090|NVIDIA GeForce RTX 3060|NVIDIA A10G|NVIDIA RTX A4000",
    "8.0": "NVIDIA A100-SXM4-80GB",
    "7.5": "turing|16xx|2080|Tesla T4|NVIDIA GeForce GTX 1660 SUPER|Quadro RTX 4000",
    "7.0": "titanv|Tesla V100-SXM2-16GB",
    "6.2": "tx2",
    "6.1": "1080ti|p40|1080|gtx1080|NVIDIA GeForce GTX 1080 Ti",
    "5.3": "Jetson Nano",
    "3.7": "k80",
}
"""What people type and drivers say."""
NO_GPUS = (
    "rtx6090|7900xtx|hopper90|x|v|1200|sm_12|all|0|arc||sm_999|12.9|RTX 9090|gpu|,|9999|AMD Radeon RX 7900|"
    "NVIDIA GeForce RTX 6090|Graphics Device|A1000000"
)


class TestTarget:
    @pytest.mark.parametrize(("cc", "texts"), TARGETS.items(), ids=list(TARGETS))
    def test_what_people_type_and_drivers_say(self, cc: str, texts: str) -> None:
        assert {text: parse_target(text) for text in texts.split("|") if parse_target(text) != A(cc)} == {}

    @pytest.mark.parametrize("text", NO_GPUS.split("|"))
    def test_what_is_no_gpu_is_an_error_of_one_line(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"Use sm_75, .*sm_121, an older one, or a product") as caught:
            parse_target(text)
        assert len(str(caught.value)) < 240 and "sm_61" not in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("rtx6000", "sm_75 sm_86 sm_89 sm_120"),
            ("4500", "sm_86 sm_89 sm_120"),
            ("nano", "sm_53 sm_87"),
            ("ampere", "sm_80 sm_86 sm_87 sm_88"),
            ("Blackwell", "sm_100 sm_101 sm_103 sm_110 sm_120 sm_121"),
            ("12", "sm_120 sm_121"),
            ("titan", "sm_52 sm_61 sm_70 sm_75"),
        ],
    )
    def test_what_may_mean_several_is_listed(self, text: str, meant: str) -> None:
        with pytest.raises(ValueError, match="may mean") as error:
            parse_target(text)
        assert " ".join(re.findall(r"sm_\d+", str(error.value))) == meant


class TestCubins:
    @pytest.mark.parametrize(
        ("cubin", "device", "runs"),
        [
            ("8.6", "8.9", True),  # an RTX 4090 needs no sm_89 code; torch's table has the other plain ones
            ("8.9", "8.6", False),
            ("9.0", "12.0", False),  # no bare cubin crosses majors
            ("10.0f", "10.3", True),
            ("10.0f", "10.7", True),
            ("10.3f", "10.0", False),
            ("12.0f", "12.1", True),
            ("12.1f", "12.0", False),
            ("10.0f", "12.0", False),
            ("8.0", "8.7", False),  # Orin is no desktop Ampere
            ("10.1", "11.0", True),  # one chip, renamed
            ("11.0", "10.1", True),
            ("10.1a", "11.0", True),
        ],
    )
    def test_rule(self, cubin: str, device: str, runs: bool) -> None:
        assert cubin_runs_on(A(cubin), A(device)) is runs

    def test_letters_never_widen(self) -> None:
        for arch, device in itertools.product(KNOWN, KNOWN):
            if arch.number in (101, 110) or arch_info(arch).tegra:  # type: ignore[union-attr]
                continue
            exact = cubin_runs_on(Arch(arch.major, arch.minor, "a"), device)
            family = cubin_runs_on(Arch(arch.major, arch.minor, "f"), device)
            assert exact <= family
            assert exact == (arch == device)
            assert family == (device.number in family_of(arch))


class TestPtx:
    def test_plain_ptx_runs_upwards_across_majors(self) -> None:
        for ptx, device in itertools.product(KNOWN, KNOWN):
            assert ptx_runs_on(ptx, device) == (device >= ptx)

    @pytest.mark.parametrize(
        ("ptx", "device", "runs"),
        [
            ("10.0a", "10.0", True),
            ("10.0a", "10.3", False),
            ("12.0f", "12.1", True),
            ("12.0f", "10.0", False),
            ("9.0a", "12.0", False),
        ],
    )
    def test_letters(self, ptx: str, device: str, runs: bool) -> None:
        assert ptx_runs_on(A(ptx), A(device)) is runs


class TestToolkits:
    @pytest.mark.parametrize(
        ("cuda", "arch", "supports"),
        [
            ((11, 7), "8.9", False),
            ((12, 8), "12.0", True),
            ((12, 8), "12.0f", False),
            ((12, 9), "12.0f", True),
            ((13, 0), "7.0", False),
            ((99, 0), "7.0", False),  # what was dropped stays dropped
            ((12, 0), "9.0a", True),
            ((13, 0), "8.6a", False),
            ((12, 0), "3.7", False),
            ((11, 4), "3.7", None),  # its first toolkit is not in the sources
            ((14, 0), "12.0", None),  # newer than the tables
            ((13, 0), "13.0", None),  # no such row
        ],
    )
    def test_support(self, cuda: tuple[int, int], arch: str, supports: bool | None) -> None:
        assert toolkit_supports(cuda, A(arch)) is supports


@pytest.mark.parametrize("text", ["sm_120,sm_89", "12.0;8.9", " 5080 , 4090 ", "sm_120;8.9,"])
def test_a_list_as_torch_and_as_people_write_it(text: str) -> None:
    assert parse_targets(text) == (Arch(12, 0), Arch(8, 9))


@pytest.mark.parametrize("text", ["12.0+PTX", "sm_120+ptx", "5080+PTX"])
def test_ptx_is_an_option(text: str) -> None:
    with pytest.raises(ValueError, match="--target sm_120 --ptx"):
        parse_target(text)


def test_an_option_that_was_taken_for_a_value_is_named() -> None:
    with pytest.raises(ValueError, match="--target was given no GPU: --python is an option"):
        parse_target("--python")
