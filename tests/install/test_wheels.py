"""What is installed already, byte for byte, is not installed again; whatever differs is."""

import base64
import csv
import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from splatfix.install import Journal, revert
from splatfix.install.environment import Environment, pip_install
from splatfix.install.installed import find_installed
from splatfix.install.wheels import MANIFEST, add_manifest, open_wheel, write_wheel
from tests.cli.conftest import Document
from tests.plan.machines import refused
from tests.tables import data

from .environments import Stages, install, run_in, snapshot, write_extension

INFO = "pkg-1.0.dist-info"
FILES = {
    "pkg/__init__.py": b"value = 1\n",
    "pkg/deep/data.bin": bytes(range(256)),
    "single.py": b"",
    "pkg-1.0.data/scripts/pkg-tool": b"#!python\nprint('tool')\n",
    "pkg-1.0.data/data/share/pkg/readme.txt": b"read me",
    "pkg-1.0.data/headers/pkg.h": b"// header",
    "pkg-1.0.dist-info/entry_points.txt": b"[console_scripts]\npkg-run = pkg:run\n\n[other]\nx = pkg:y\n",
}


def record_is_right(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
        assert {row[0] for row in rows} == set(archive.namelist())
        for name, digest, size in rows:
            if name != record:
                content = archive.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={expected}", len(content))


def test_a_written_wheel_is_a_proper_wheel_and_always_the_same(tmp_path: Path) -> None:
    first = write_wheel(tmp_path / "a", "pkg", "1.0", FILES, "A package")
    second = write_wheel(tmp_path / "b", "pkg", "1.0", FILES, "A package")
    assert first.name == "pkg-1.0-py3-none-any.whl"
    assert first.read_bytes() == second.read_bytes()
    record_is_right(first)
    wheel = open_wheel(first)
    assert (wheel.name, wheel.version, wheel.pure, wheel.tags) == ("pkg", "1.0", True, ("py3-none-any",))
    assert wheel.modules == ("pkg", "single")
    add_manifest(first, "built", {"targets": ["sm_120"]})
    record_is_right(first)
    with zipfile.ZipFile(first) as archive:
        assert json.loads(archive.read(f"{INFO}/{MANIFEST}"))["targets"] == ["sm_120"]
        assert archive.read("pkg/deep/data.bin") == FILES["pkg/deep/data.bin"]


def test_pip_writes_exactly_where_we_say(with_pip: Environment, tmp_path: Path) -> None:
    wheel = open_wheel(write_wheel(tmp_path, "pkg", "1.0", FILES, "A package"))
    said = {path for path in wheel.destinations(with_pip) if path.suffix != ".exe"}
    pip_install(with_pip, tmp_path / "pip.log", wheel.path)
    (installed,) = find_installed(with_pip, "pkg")
    written = {path for path in installed.files if path.suffix != ".pyc"}
    added_by_pip = {installed.info / name for name in ("INSTALLER", "REQUESTED", "direct_url.json")}
    assert written - said <= added_by_pip and said <= written and all(map(Path.exists, said))


@pytest.mark.parametrize(("member", "content"), data(__file__)["damage"])
def test_a_wheel_that_would_write_elsewhere(member: str, content: str, tmp_path: Path) -> None:
    path = write_wheel(tmp_path, "pkg", "1.0", FILES, "A package")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[member] = content.encode("latin-1")
    with zipfile.ZipFile(path, "w") as archive:
        for name, held in members.items():
            archive.writestr(name, held)
    assert refused(open_wheel, path).code == "not-a-wheel"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", None, "first member"])
def test_no_wheel_no_traceback(tmp_path: Path, content: bytes | str | None) -> None:
    path = write_wheel(tmp_path, "pkg", "1.0", FILES, "A package")
    if content is None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.py", "")
    else:  # of the last the directory is whole
        path.write_bytes(content if isinstance(content, bytes) else b"XXXX" + path.read_bytes()[4:])
    assert refused(add_manifest, path, "built", {}).code == "not-a-wheel"


def test_modules_of_a_namespace_and_of_libraries(tmp_path: Path) -> None:
    tag = "cpython-311-x86_64-linux-gnu.so"
    names = (f"simple_knn/_C.{tag}", "simple_knn/libhelper.so", f"top_level.{tag}")
    wheel = open_wheel(write_wheel(tmp_path, "simple-knn", "0", dict.fromkeys(names, b""), ""))
    assert wheel.modules == ("simple_knn._C", "top_level")


def test_the_same_again_changes_nothing(environment: Environment, tmp_path: Path, document: Document) -> None:
    source = write_extension(tmp_path / "one")
    before = snapshot(environment)
    install(environment, source)
    held = snapshot(environment)

    (item,) = document("install", source, "--python", environment.python)["outcome"]["items"]
    assert item["up_to_date"] and item["version"] == item["before"] == "1.0"
    assert ("loads", True) in [(rung["name"], rung["reached"]) for rung in item["proof"]]
    assert snapshot(environment) == held
    first, second = Journal(environment.state_folder).entries()
    assert first.active and not second.active
    assert refused(revert, environment.python, second.id).code == "nothing-to-revert"

    again = install(environment, source, reinstall=True)
    assert not again.items[0].up_to_date and Journal(environment.state_folder).entries()[-1].active
    revert(environment.python)
    assert snapshot(environment) == held
    assert revert(environment.python).entry == first.id and snapshot(environment) == before


def test_what_differs_is_installed_again(stages: Stages, tmp_path: Path) -> None:
    """Changed, lost, or made of another source of the same version."""
    environment, source = stages.at("one"), write_extension(tmp_path / "one")
    package = environment.platlib / "tiny_probe"
    module = package / "__init__.py"
    text = module.read_text()
    (native,) = package.glob("_C*.so")
    for spoil in (
        lambda: module.write_text(text + "# mine\n"),
        native.unlink,
        (environment.platlib / "tiny_probe-1.0.dist-info" / "METADATA").unlink,
    ):
        spoil()
        (item,) = install(environment, source).items
        assert not item.up_to_date and module.read_text() == text and native.is_file()
    assert install(environment, source).items[0].up_to_date
    (item,) = install(environment, write_extension(tmp_path / "other", answer=7)).items
    assert not item.up_to_date and run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "7"


def test_of_two_only_the_new_one_is_installed_and_taken_back(stages: Stages, tmp_path: Path) -> None:
    environment = stages.at("one")
    one, other = write_extension(tmp_path / "one"), write_extension(tmp_path / "other", name="other_probe")
    outcome = install(environment, one, other)
    assert [item.up_to_date for item in outcome.items] == [True, False]
    assert [item.subject for item in revert(environment.python).items] == ["other_probe"]
    assert snapshot(environment) == stages.files["one"]
