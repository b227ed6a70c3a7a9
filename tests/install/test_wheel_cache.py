import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from splatfix.core.runner import Runner
from splatfix.install import WheelCache
from splatfix.install.environment import Environment
from splatfix.install.wheel_cache import identity_of, origin_of, wheel_key
from splatfix.plan import BuildWheel
from tests.archs import archs
from tests.cli.conftest import Document
from tests.conftest import Splatfix
from tests.files import put
from tests.plan.machines import CUDA_13, INTERPRETER, TORCH, compilers, cuda_source, machine, refused
from tests.plan.test_install_plan import build_of, plan

from .environments import run_in, write_extension

WHEEL = "pkg-1.0-py3-none-any.whl"


def keep(cache: WheelCache, folder: Path) -> None:
    wheel = folder / WHEEL
    wheel.write_bytes(b"a wheel")
    cache.put("k", wheel, {"torch": "2.11"})


@pytest.mark.parametrize(
    ("name", "content"),
    [(WHEEL, b"another"), (WHEEL, None), ("entry.json", b'{"wheel": "pk'), ("entry.json", b'{"wheel": 1}')],
)
def test_a_damaged_entry_is_no_entry(tmp_path: Path, name: str, content: bytes | None) -> None:
    cache = WheelCache(tmp_path / "cache")
    keep(cache, tmp_path)
    damaged = cache.folder / "k" / name
    damaged.unlink() if content is None else damaged.write_bytes(content)
    assert cache.take("k", tmp_path / "out") is None


def open_file(folder: Path) -> None:
    for path, mode in ((folder, 0o755), (folder / "k", 0o755), (folder / "k/entry.json", 0o666)):
        path.chmod(mode)


def link_the_wheel(folder: Path) -> None:
    wheel = (folder / "k" / WHEEL).rename(folder.parent / "elsewhere.whl")
    (folder / "k" / WHEEL).symlink_to(wheel)


@pytest.mark.parametrize("spoil", [lambda folder: folder.chmod(0o777), open_file, link_the_wheel])
def test_what_others_can_write_is_not_used(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """A digest in the cache vouches for nothing: who writes the wheel writes its digest too."""
    cache = WheelCache(tmp_path / "cache")
    keep(cache, tmp_path)
    assert cache.take("k", tmp_path / "out") is not None and cache.refused == []
    spoil(cache.folder)
    assert cache.take("k", tmp_path / "out") is None and cache.entries() == ()
    assert [sentence for sentence in cache.refused if "not used" in sentence] == cache.refused != []
    keep(cache, tmp_path)  # does nothing where others can write, and never fails
    cache.clear()
    assert list(cache.folder.iterdir()) == []


def test_a_refused_cache_fails_no_installation(
    environment: Environment, own_cache: Path, tmp_path: Path, document: Document
) -> None:
    (own_cache / "wheels").unlink()
    (own_cache / "wheels").mkdir()
    (own_cache / "wheels").chmod(0o777)
    source = write_extension(tmp_path / "source")
    (note,) = document("install", source, "--python", environment.python)["outcome"]["notes"]
    assert note == f"the wheel cache is not used: {own_cache / 'wheels'} can be written by others"
    assert list((own_cache / "wheels").iterdir()) == []
    assert document("cache", "list")["refused"] == [note]


def test_a_killed_put_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = WheelCache(tmp_path / "cache")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("splatfix.install.wheel_cache.write_json", Mock(side_effect=KeyboardInterrupt))
        keep(cache, tmp_path)
    assert cache.entries() == () and cache.refused == [] and list(cache.folder.iterdir()) == []


def test_the_key_is_of_every_byte_and_every_version(tmp_path: Path) -> None:
    source, versions = write_extension(tmp_path / "source"), {"torch": "2.11", "arch": "12.0"}
    keys = [wheel_key(source, versions), wheel_key(source, {**versions, "torch": "2.12"})]
    assert wheel_key(source, dict(reversed(versions.items()))) == keys[0]
    (source / "probe.c").write_text((source / "probe.c").read_text() + " ")
    keys.append(wheel_key(source, versions))
    (source / "probe.c").rename(source / "other.c")
    assert len({*keys, wheel_key(source, versions)}) == 4


def test_a_failed_clear_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = WheelCache(tmp_path / "cache")
    keep(cache, tmp_path)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as on a read-only disk
    error = refused(cache.clear)
    assert error.code == "cache-not-cleared" and "1 of 1" in error.what


def test_a_wheel_cleared_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = WheelCache(tmp_path / "cache")
    keep(cache, tmp_path)
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=FileNotFoundError))
    assert cache.take("k", tmp_path / "out") is None


def test_variables_that_setup_py_reads_are_a_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"targets": archs("sm_120"), "variables": {"CUDA_ARCHITECTURES": "120"}, "unset": ("LINE_INFO",)}
    step = BuildWheel(subject="x", source="/x", **given)
    for name in ("WITH_SYMBOLS", "LINE_INFO", "CFLAGS"):
        monkeypatch.delenv(name, raising=False)
    reads = ("WITH_SYMBOLS", "LINE_INFO", "CUDA_ARCHITECTURES", "MAX_JOBS", "PATH")
    plain = identity_of(step, machine(), reads)
    monkeypatch.setenv("MAX_JOBS", "7")
    monkeypatch.setenv("LINE_INFO", "1")  # taken out for the build
    monkeypatch.setenv("CUDA_ARCHITECTURES", "75")  # set by the plan
    assert identity_of(step, machine(), reads) == plain
    unread = identity_of(step, machine())
    for name in ("WITH_SYMBOLS", "CFLAGS"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "-g")
            assert identity_of(step, machine(), reads) != plain
            assert name == "CFLAGS" or identity_of(step, machine()) == unread


def identity_in(folder: Path, source: Path, cublas: str = "13.0.2", cpath: str = "") -> dict[str, str]:
    """What decides on a wheel that is built in an environment at ``folder``, whose torch lends the toolkit headers."""
    site = folder / "lib" / "site-packages"
    lent = {"cublas_v2.h": f"{site}/nvidia/cu13/include"}
    places = {"executable": str(folder / "bin/python"), "prefix": str(folder), "site_packages": (str(site),)}
    facts = machine(
        interpreter=replace(INTERPRETER, **places),
        torch=replace(TORCH, folder=str(site / "torch")),
        toolkits=(replace(CUDA_13, missing=("include/cublas_v2.h",), elsewhere=lent),),
        host=compilers("12.2.0", folder=str(folder / "bin")),
        packages={"setuptools": "80.0", "ninja": "1.11", "pip": folder.name, "nvidia-cublas": cublas},
        variables={"CPATH": cpath} if cpath else {},
    )
    build = build_of(plan(source, facts))
    assert str(folder) in build.variables["CPATH"] and str(folder) in build.variables["CXX"]
    return identity_of(build, facts, ("CONDA_PREFIX",))


def test_two_environments_of_one_torch_share_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = cuda_source(tmp_path / "source")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "one"))
    one = identity_in(tmp_path / "one", source)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "one-more"))
    assert identity_in(tmp_path / "one-more", source) == one
    assert identity_in(tmp_path / "other", source, cublas="13.1.0") != one, "other headers are lent"
    assert identity_in(tmp_path / "mine", source, cpath="/mine/include") != one
    monkeypatch.setenv("CONDA_PREFIX", "/elsewhere")
    assert identity_in(tmp_path / "one", source) != one, "its setup.py looks there"


@pytest.mark.usefixtures("fresh_wheels")
def test_what_was_built_is_not_built_again(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splatfix: Splatfix
) -> None:
    """Told another thing through a variable that its setup.py reads, the same source is another wheel."""
    answer = "import os\nflags = ['-DANSWER=' + os.environ.get('PROBE_ANSWER', '1')]\n"
    source = write_extension(tmp_path / "source", before=answer)
    for name, old, new in (
        ("setup.py", '["-O0"]', "flags"),
        ("probe.c", "PyLong_FromLong(42)", "PyLong_FromLong(ANSWER)"),
    ):
        (source / name).write_text((source / name).read_text().replace(old, new))
    builds = []
    real = Runner.run

    def counted(self: Runner, argv, **options):  # type: ignore[no-untyped-def]
        builds.append(argv) if "--wheel" in argv else None
        return real(self, argv, **options)

    monkeypatch.setattr(Runner, "run", counted)
    command = ("install", source, "--python", environment.python)
    for value, built in (("1", 1), ("2", 2), ("1", 2)):
        monkeypatch.setenv("PROBE_ANSWER", value)
        assert splatfix(*command).returncode == 0 and len(builds) == built
        assert run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == value
    again = splatfix(*command, "--no-cache")
    assert "Already up to date" in again.stdout and len(builds) == 3


@pytest.mark.parametrize("url", ["https://host.example/a/tiny.git", "git@host.example:a/tiny.git", ""])
def test_a_source_is_told_by_its_repository_else_its_folder(tmp_path: Path, url: str) -> None:
    remote = f'[remote "origin"]\n\turl = {url}\n' if url else ""
    folder = put(tmp_path / "x", {".git/HEAD": "0123456789" * 4 + "\n", ".git/config": remote})
    (folder / "submodules" / "knn").mkdir(parents=True)
    said = "a/tiny" if url else str(folder)
    assert origin_of(folder) == f"{said} at 0123456789"
    assert not url or origin_of(folder / "submodules/knn") == f"{said}/submodules/knn at 0123456789"
    assert origin_of(tmp_path) == str(tmp_path)
