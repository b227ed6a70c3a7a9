from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import make_context
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.core.resources import TOOLKIT_MARKER
from splatfix.facts import System
from splatfix.facts.machine.toolkits import in_cache
from splatfix.model import Fact, Facts, Gpu, MissingHeader, ToolkitChoice
from splatfix.model.steps import InstallDependencies
from splatfix.plan import BuildWheel, InstallWheel, Plan, ProvideToolkit, wheel_build
from splatfix.plan.tools import own_toolkit
from tests.archs import goal, request_for
from tests.files import put
from tests.plan.machines import argv, make_plan, step_of
from tests.tables import data

from .machines import (
    CUDA_12,
    CUDA_13,
    INTERPRETER,
    TORCH,
    changed,
    compilers,
    cuda_source,
    machine,
    with_submodules,
)
from .machines import refused as problem_of


def plan(source: Path, facts: Facts | None = None, **asked: Any) -> Plan:
    return make_plan(request_for((str(source),), **{"targets": ("sm_120",), **asked}), facts or machine())


def build_of(made: Plan) -> BuildWheel:
    return next(step for step in made.steps if isinstance(step, BuildWheel))


def refused(code: str, source: Path, facts: Facts | None = None, **asked: Any) -> SplatfixError:
    error = problem_of(plan, source, facts, **asked)
    assert error.code == code, error.what
    assert error.todo, "it does not say what to do"
    return error


def test_all_is_built_and_verified_before_installing(tmp_path: Path) -> None:
    folders = tuple(str(cuda_source(tmp_path / name, name)) for name in ("aa", "bb"))
    made = make_plan(request_for(folders, ("sm_120",)), machine(packages=_PACKAGES | {"bb": "3.0"}))
    assert " ".join(f"{step.kind}:{step.subject}" for step in made.steps) == (
        "build-wheel:aa build-wheel:bb verify-wheel:aa verify-wheel:bb "
        "install-wheel:aa check-import:aa install-wheel:bb check-import:bb"
    )
    replaced = [step.replaces for step in made.steps if isinstance(step, InstallWheel)]
    assert replaced == ["", "3.0"]
    assert to_json(made)["schema_version"] == 2


@pytest.mark.parametrize(
    ("header", "rule"),
    [
        ("cuda_texture_types.h", "texture-headers"),
        ("cub/iterator/discard_output_iterator.cuh", "cub-iterators"),
    ],
)
def test_headers_that_nothing_brings_stop_the_plan(tmp_path: Path, header: str, rule: str) -> None:
    """Else the first file that includes one ends the build, after all other wheels; unless an edit takes it out."""
    toolkit = replace(CUDA_13, root=str(tmp_path / "cuda"))
    facts = machine(toolkits=(toolkit,))
    put(tmp_path / "cuda", {"include/cuda_runtime.h": ""})
    folder = put(cuda_source(tmp_path / "dgr"), {"x.cu": f"#include <{header}>\n"})
    assert rule in {edit.rule for edit in build_of(plan(folder, facts)).edits}
    put(folder, {"x.cu": "#include <curand_kernel.h>\n"})
    assert "curand_kernel.h" in refused("headers-missing", folder, facts).what


def test_apt_hides_nothing_that_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = MissingHeader("a.h", "x.cu", 1, (CUDA_13.root,))
    library = MissingHeader("b.h", "x.cu", 2, (), "libb-dev")
    for lacking, owner in (((lost, library), "CUDA 13"), ((library, lost), "this system")):
        monkeypatch.setattr(wheel_build.disk, "missing_headers_of", lambda *_, found=lacking: found)
        error = refused("headers-missing", cuda_source(tmp_path))
        said = [step.line() for step in error.todo]
        assert owner in error.what and "libb-dev" in said[0] and "Install the part" in said[1]


def test_what_only_shines_through_is_not_replaced(tmp_path: Path) -> None:
    """A distribution of another environment, seen through a .pth file, stays where it is."""
    facts = machine(packages=_PACKAGES | {"dgr": "1.0"})
    found = facts.environment.distributions.value or ()
    elsewhere = tuple(replace(item, location="/other/site-packages") for item in found)
    made = plan(cuda_source(tmp_path), changed(facts, distributions=Fact(elsewhere, "test")))
    assert [step.replaces for step in made.steps if isinstance(step, InstallWheel)] == [""]


_PACKAGES = {"pip": "25.0", "setuptools": "80.0", "ninja": "1.11"}


def test_the_environment_is_explicit(tmp_path: Path) -> None:
    facts = machine(
        variables={"NVCC_APPEND_FLAGS": "-arch=sm_50", "PYTHONPATH": "/x", "CC": "gcc"},
        choice=ToolkitChoice("/usr/local", "first nvcc on PATH", "/usr/local/bin/nvcc", CUDA_13.root, False),
        memory=6 * 2**30,
    )
    made = plan(cuda_source(tmp_path), facts)
    build = build_of(made)
    assert build.variables == {
        "CUDA_HOME": "/usr/local/cuda-13.0",
        "CC": "/usr/bin/gcc",
        "CXX": "/usr/bin/g++",
        "MAX_JOBS": "2",
        "TORCH_CUDA_ARCH_LIST": "12.0",
    }
    assert set(build.unset) == {"NVCC_APPEND_FLAGS", "PYTHONPATH"}
    assert build.path_first == ("/env/bin", "/usr/local/cuda-13.0/bin")
    considered = {item.what: item.why for item in made.considered}
    assert "belongs to /usr/local/cuda-13.0" in considered["CUDA_HOME=/usr/local"]


def bad(**values: Any) -> dict[str, Any]:
    """A machine whose only toolkit differs from a good one in this."""
    return {"toolkits": (replace(CUDA_13, **values),)}


TORCH_211_128 = replace(TORCH, version="2.11.0+cu128", cuda="12.8")
EMBEDDED_PYTHON = replace(INTERPRETER, headers=False)
SYSTEM_PYTHON = replace(INTERPRETER, externally_managed=True)
ROCM = replace(TORCH, cuda=None, hip="6.2")
PIP = {"pip": "25"}


@pytest.mark.parametrize(
    ("code", "words", "given", "asked"),
    [
        ("no-gpu-to-target", "", {}, {"targets": ("auto",)}),
        ("no-gpu-to-target", "2b85", {"gpus": (Gpu(0, "NVIDIA PCI device 2b85"),)}, {"targets": ()}),
        ("arch-unknown-to-torch", "2.8", {}, {"targets": ("sm_121a",)}),
        ("no-matching-toolkit", "another major than its own 13", bad(version="12.8.93"), {}),
        ("no-matching-toolkit", "cannot compile for sm_120", bad(archs=("sm_75", "sm_80")), {}),
        ("no-matching-toolkit", "nvcc does not start", bad(nvcc=None, version=None, error="nvcc does not start"), {}),
        ("no-matching-toolkit", "incomplete: include/cuda_runtime.h", bad(missing=("include/cuda_runtime.h",)), {}),
        ("no-matching-toolkit", "none was found", {"toolkits": ()}, {}),
        ("no-matching-toolkit", "/usr/local/cuda-12.8 does not fit", {"toolkits": (CUDA_12,)}, {"cuda_home": CUDA_12.root}),
        ("no-toolkit-there", "", {}, {"cuda_home": "/usr"}),
        # torch 2.11 refuses gcc 14 with CUDA 12.8 although that nvcc takes it
        ("no-host-compiler", "too new for torch 2.11.0+cu128",
         {"torch": TORCH_211_128, "toolkits": (CUDA_12,), "host": compilers("14.2.0")}, {}),
        ("no-host-compiler", "C compiler of the same version", {"host": compilers("12.2.0")[1:]}, {}),
        ("no-host-compiler", "none was found", {"host": ()}, {}),
        ("build-tools-missing", "-m pip install setuptools wheel ninja", {"packages": PIP}, {}),
        ("build-tools-missing", "-m pip install wheel", {"packages": PIP | {"setuptools": "65.5.0", "ninja": "1.11"}}, {}),
        ("build-tools-missing", "-m pip install ninja", {"packages": PIP | {"setuptools": "70.1"}}, {}),
        ("no-pip", "ensurepip", {"packages": {}}, {}),
        ("externally-managed", "", {"interpreter": SYSTEM_PYTHON}, {}),
        ("no-python-headers", "--backend nvrtc", {"interpreter": EMBEDDED_PYTHON}, {}),
        ("cpu-only-torch", "ROCm", {"torch": ROCM}, {}),
        ("ptx-unavailable", "--dry-run --why --python /env/bin/python --target sm_120", {"toolkits": ()}, {"ptx": True}),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, code: str, words: str, given: dict[str, Any], asked: dict[str, Any]) -> None:
    error = refused(code, cuda_source(tmp_path), machine(**given), **asked)
    assert words in " | ".join([error.what, *(step.line() for step in error.todo)])
    assert error.exit_code is (Exit.UNDETERMINED if code == "no-gpu-to-target" else Exit.FAILURE)


NEWER = replace(CUDA_13, root="/usr/local/cuda-13.2", version="13.2.1")
MIXED = (Gpu(0, "RTX 5090", cc="12.0"), Gpu(1, "RTX 3090", cc="8.6"), Gpu(2, "RTX 5080", cc="12.0"))
MINE = compilers("13.1.0", folder="/opt/gcc/bin", via="CXX")


@pytest.mark.parametrize(
    ("given", "asked", "expected"),
    [
        # the closest toolkit of torch's major
        ({"toolkits": (NEWER, CUDA_12, CUDA_13)}, {}, {"CUDA_HOME": CUDA_13.root}),
        ({"toolkits": (CUDA_13, CUDA_12)}, {"cuda_home": f"{CUDA_13.root}/"}, {"CUDA_HOME": CUDA_13.root}),
        # gcc 16 is too new for nvcc 13.0 (15), so the newest versioned one below it is taken
        ({"host": compilers("16.1.0", "13.3.0", "14.2.0")}, {}, {"CC": "/usr/bin/gcc-14", "CXX": "/usr/bin/g++-14"}),
        ({"torch": TORCH_211_128, "toolkits": (CUDA_12,), "host": compilers("14.2.0", "13.3.0")}, {},
         {"CXX": "/usr/bin/g++-13"}),
        ({"host": (*compilers("12.2.0"), *MINE)}, {}, {"CXX": "/opt/gcc/bin/g++"}),
        # sm_121 (GB10) runs sm_120 code; a torch that cannot say 12.1 builds for 12.0
        ({}, {"targets": ("sm_121",)}, {"TORCH_CUDA_ARCH_LIST": "12.0"}),
        ({}, {"jobs": 7}, {"MAX_JOBS": "7"}),
        # the machine's own GPUs, and what is named beside them
        ({"gpus": MIXED}, {"targets": ("auto", "sm_90")}, {"TORCH_CUDA_ARCH_LIST": "12.0;8.6;9.0"}),
        ({"gpus": MIXED}, {"targets": ()}, {"TORCH_CUDA_ARCH_LIST": "12.0;8.6"}),
    ],
)  # fmt: skip
def test_what_is_taken_for_the_build(
    tmp_path: Path, given: dict[str, Any], asked: dict[str, Any], expected: dict[str, str]
) -> None:
    variables = build_of(plan(cuda_source(tmp_path), machine(**given), **asked)).variables
    assert {name: variables[name] for name in expected} == expected


def test_what_is_passed_over_is_told(tmp_path: Path) -> None:
    host = compilers("16.1.0", "14.2.0")
    made = plan(cuda_source(tmp_path), machine(toolkits=(NEWER, CUDA_12, CUDA_13), host=host))
    considered = {item.what: item.why for item in made.considered}
    assert "another major" in considered["toolkit /usr/local/cuda-12.8"]
    assert "also fits" in considered["toolkit /usr/local/cuda-13.2"]
    assert "nvcc 13.0.88 accepts up to gcc 15" in considered["compiler /usr/bin/g++"]


REQUIRES = """install_requires=["ninja", "numpy", "jaxtyping", "rich>=12", "torch>=2.0",
                        "typing_extensions; python_version<'3.8'"], """


def importing(folder: Path) -> Path:
    script = cuda_source(folder) / "setup.py"
    script.write_text(script.read_text().replace("ext_modules=", f"{REQUIRES}ext_modules="))
    return folder


def test_what_it_imports_is_looked_for_before_it_is_compiled(tmp_path: Path) -> None:
    """gsplat names jaxtyping and rich: without them it would fail at the import, 40 minutes later."""
    folder, script = importing(tmp_path), tmp_path / "setup.py"

    def missing(packages: dict[str, str], **given: Any) -> SplatfixError:
        return refused("build-tools-missing", folder, machine(packages=packages, **given))

    there = _PACKAGES | {"numpy": "2.1", "rich": "10.2"}
    error = missing(there)
    assert "jaxtyping, rich>=12 to be imported" in error.what and "to be built" not in error.what
    assert argv(error.todo[0])[1:] == ("-m", "pip", "install", "jaxtyping", "rich>=12")
    whole = there | {"rich": "13.9", "jaxtyping": "0.2"}
    assert build_of(plan(folder, machine(packages=whole))).subject == "dgr"
    # markers are those of the target's Python, not of ours
    old = replace(INTERPRETER, version="3.7.9")
    assert "typing_extensions" in missing(whole, interpreter=old).what
    # torch-points-kernels asks for a numpy that is older than every wheel for this Python: the installed one stays
    script.write_text(script.read_text().replace('"numpy"', '"numpy>=1.9,<=1.21"'))
    note = "dgr declares numpy>=1.9,<=1.21; 2.1 is installed, and stays"
    assert note in plan(folder, machine(packages=whole)).notes
    assert "numpy>=1.9,<=1.21 to be imported" in missing(whole | {"numpy": "1.8"}).what


def test_an_import_of_unknown_origin_is_named_before_the_build(tmp_path: Path) -> None:
    imports = {"dgr/__init__.py": "import torch\nfrom house_made import scan\n"}
    folder = put(cuda_source(tmp_path / "dgr"), imports)
    facts = changed(machine(packages=_PACKAGES), modules=Fact(("torch",), "test"))
    made = plan(folder, facts)
    assert any("house_made" in note and "dgr" in note for note in made.notes), made.notes
    # one that an empty submodule would bring is known to be missing, and the build would be taken back at its import
    with_submodules(folder, "external/house_made")
    error = refused("source-incomplete", folder, facts)
    assert "missing or empty: external/house_made" in error.what
    (folder / ".gitmodules").unlink()
    (folder / "requirements.txt").write_text("numpy\nhouse-made\n")
    made = plan(folder, facts, with_dependencies=True)
    assert not any("house_made" in note for note in made.notes)
    assert "house-made" in step_of(made, InstallDependencies).requirements


def test_torch_is_never_changed_for_a_source(tmp_path: Path) -> None:
    there = _PACKAGES | {"numpy": "2.1", "rich": "13.0", "jaxtyping": "0.2"}
    old = replace(TORCH, version="1.13.1+cu130")
    error = refused("torch-does-not-fit", importing(tmp_path), machine(packages=there, torch=old))
    assert "torch>=2.0" in error.what and not any(item.command for item in error.todo)


@pytest.mark.parametrize("where", ["setup.py", "setup.cfg", "pyproject.toml"])
def test_a_source_for_another_python_is_refused_early(tmp_path: Path, where: str) -> None:
    folder = cuda_source(tmp_path / "dgr")
    setup = (folder / "setup.py").read_text()
    texts = {
        "setup.py": setup.replace("ext_modules=", 'python_requires="{}", ext_modules='),
        "setup.cfg": "[options]\npython_requires = {}\n",
        "pyproject.toml": '[project]\nname = "dgr"\nversion = "1"\nrequires-python = "{}"\n',
    }
    for wanted, fits in ((">=3.12", False), (">=3.9,<3.11", False), (">=3.10", True), ("three", True)):
        put(folder, {where: texts[where].replace("{}", wanted)})
        if fits:
            assert build_of(plan(folder)).subject
        else:
            said = f"asks for Python {wanted}, and /env/bin/python is Python 3.11.7"
            assert said in refused("python-does-not-fit", folder).what


def test_what_a_project_removes_again_is_said() -> None:
    request = request_for(("fused_ssim",), backend="pure")
    locked = replace(INTERPRETER, lock_file="/project/uv.lock")
    with_lock, without = (make_plan(request, machine(interpreter=item)) for item in (locked, INTERPRETER))
    (note,) = set(with_lock.notes) - set(without.notes)
    assert "`uv sync`" in note and "no-build-isolation-package" in note


def test_torch_absent_damaged_or_for_other_hardware(tmp_path: Path) -> None:
    error = refused("no-torch", cuda_source(tmp_path), machine(torch=None))
    context = make_context(machine(torch=None), goal("sm_120"))
    (diagnosed,) = run_checks(context, select(("torch-missing",)))
    assert error.todo[0].line() in [item.line() for item in diagnosed.remedy if item.command]
    assert "pip" in argv(error.todo[0]) and "/whl/cu1" in argv(error.todo[0])[-1]
    pure = request_for(("fused_ssim",), backend="pure")
    error = problem_of(make_plan, pure, machine(torch=None))
    assert argv(error.todo[0]) == ("/env/bin/python", "-m", "pip", "install", "torch")
    damaged = changed(machine(), torch=Fact(None, "", "version.py is damaged"))
    refused("torch-unreadable", cuda_source(tmp_path), damaged)


def test_a_source_without_cuda_needs_no_toolkit_and_no_gpu(tmp_path: Path) -> None:
    put(tmp_path, {"r.cpp": "", "setup.py": 'setup(name="r", ext_modules=[CppExtension("r", ["r.cpp"])])'})
    cpu = replace(TORCH, cuda=None)
    made = plan(tmp_path, machine(torch=cpu, toolkits=()), targets=())
    assert build_of(made).variables == {"MAX_JOBS": "8"} and made.targets == ()
    assert "toolkit" in made.title and "without" in made.title
    refused("no-host-compiler", tmp_path, machine(torch=cpu, toolkits=(), host=()), targets=())


def test_of_two_sources_of_one_name_each_command_keeps_the_options(tmp_path: Path) -> None:
    c, d, again, *others = (str(cuda_source(tmp_path / str(at), name)) for at, name in enumerate("cdcdab"))
    asked = request_for((c, d, again, *others), ("sm_120",), with_dependencies=True)
    error = problem_of(make_plan, asked, machine())
    assert error.code == "same-name-twice" and f"{c} and {again}" in error.what
    for step, twin in zip(error.todo[1:], (c, again), strict=True):
        assert argv(step)[2:7] == (twin, d, *others) and "--with-dependencies" in argv(step)


def test_cuda_code_that_no_build_compiles(tmp_path: Path) -> None:
    """torchhull was compiled for nothing, and refused for want of GPU code: charonload has CMake compile it at its import."""
    put(tmp_path, data(__file__)["hull"])
    there = machine(packages=_PACKAGES | {"charonload": "1"})

    def with_cmake(version: str) -> Facts:
        return changed(there, tools={"cmake": version}, modules=Fact(("charonload",), "test"))

    assert "CMake on PATH: 3.29.2" in refused("compiled-at-import", tmp_path, with_cmake("3.29.2")).what
    put(tmp_path, {"src/hull/A.py": "torch.utils.cpp_extension.load('x', [])\n"})
    made = plan(tmp_path, with_cmake("3.30.1"))
    assert "CMake 3.30 or newer does when it first runs" in made.notes[0] and not build_of(made).targets
    assert not plan(cuda_source(tmp_path / "b"), there).notes


def test_a_cuda_extension_without_cuda_code_is_not_looked_into_for_any(tmp_path: Path) -> None:
    """LiDAR-RT's OptiX tracer is C++ alone, and was refused as "no-gpu-code" after its build."""
    script = cuda_source(tmp_path) / "setup.py"
    put(tmp_path, {"setup.py": script.read_text().replace("x.cu", "x.cpp"), "x.cpp": "", "ptx/ray.cu": ""})
    made = plan(tmp_path, machine())
    assert build_of(made).variables["CUDA_HOME"] == CUDA_13.root
    assert "tags and contents" in made.steps[1].text and build_of(plan(cuda_source(tmp_path))).targets


def test_pure_plans(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text('setup(name="fused_ssim", ext_modules=[])')
    cpu = machine(torch=replace(TORCH, cuda=None), packages=_PACKAGES | {"simple_knn": "0.0.0"})
    made = make_plan(request_for((str(tmp_path), "simple_knn", "fused-ssim"), backend="pure"), cpu)
    assert made.subjects == ("fused-ssim", "simple-knn")
    assert [a.replaces for a in made.steps if isinstance(a, InstallWheel)] == ["", "0.0.0"]
    assert made.targets == () and made.notes
    assert problem_of(make_plan, request_for(("x",), backend="magic"), cpu).exit_code is Exit.USAGE


def test_fixed_archs_without_the_target_are_edited_away(tmp_path: Path) -> None:
    """Where a rule can edit them; the checkout stays as it is."""
    folder = cuda_source(tmp_path, flags='"-O3", "-gencode=arch=compute_70,code=sm_70"')
    build = build_of(plan(folder))
    assert build.variables["TORCH_CUDA_ARCH_LIST"] == "12.0"
    assert [edit.rule for edit in build.edits] == ["fixed-architectures"]
    said = " | ".join(reason.text for reason in build.reasons)
    assert "an edit takes the architectures out" in said and "names no architecture" not in said
    assert "compute_70" in (folder / "setup.py").read_text()
    kept = cuda_source(tmp_path / "b", flags='"-gencode=arch=compute_120,code=sm_120"')
    assert build_of(plan(kept)).edits == ()
    pairs = 'pairs = ["arch=compute_75,code=sm_75"]\n'
    computed = cuda_source(tmp_path / "c", flags='"-gencode"] + pairs + ["-O3"', before=pairs)
    refused("arch-fixed-in-source", computed)


@pytest.mark.parametrize("target", ["sm_120", "sm_89"])
def test_computed_archs_are_edited_away(tmp_path: Path, target: str) -> None:
    """The shape of fused-ssim between March 2025 and CUDA_ARCHITECTURES: the builder's GPU, or a list, decides."""
    folder = cuda_source(tmp_path, flags="*flags", before=data(__file__)["computed_archs"])
    (folder / "setup.py").write_text((folder / "setup.py").read_text().replace("[*flags]", "flags"))
    build = build_of(plan(folder, targets=(target,)))
    assert {edit.rule for edit in build.edits} == {"computed-architecture", "fixed-architectures"}
    assert build.variables["TORCH_CUDA_ARCH_LIST"] == ("12.0" if target == "sm_120" else "8.9")


def test_an_old_gpu_is_refused_what_its_instructions_lack(tmp_path: Path) -> None:
    torch = replace(TORCH, version="2.6.0+cu126", cuda="12.6", knows_archs=("6.1", "7.5"))
    old = replace(CUDA_12, version="12.6.20", archs=("sm_61", "sm_75"))
    facts = machine(torch=torch, toolkits=(old,))
    folder = put(cuda_source(tmp_path), {"x.cu": "auto same = cg::labeled_partition(warp, id);"})
    assert "6.1" in refused("refused-by-rule", folder, facts, targets=("sm_75", "sm_61")).what
    assert build_of(plan(folder, facts, targets=("sm_75",))).edits == ()


def test_in_place_edits_the_checkout_after_the_proof(tmp_path: Path) -> None:
    source = put(cuda_source(tmp_path), {"x.cu": "float a = FLT_MAX;\n"})
    kinds = [step.kind for step in plan(source, in_place=True).steps]
    assert kinds == ["build-wheel", "verify-wheel", "edit-source", "install-wheel", "check-import"]
    assert "edit-source" not in [step.kind for step in plan(source).steps]


def test_a_forced_mismatch_is_a_last_resort_and_is_said(tmp_path: Path) -> None:
    source, old = cuda_source(tmp_path), machine(toolkits=(CUDA_12,))
    both = build_of(plan(source, machine(toolkits=(CUDA_12, CUDA_13)), force_cuda_mismatch=True))
    assert (both.variables["CUDA_HOME"], both.cuda_mismatch) == (CUDA_13.root, "")
    made = plan(source, old, force_cuda_mismatch=True)
    words = "compiled with CUDA 12.8.93, torch is built with CUDA 13.0"
    assert build_of(made).variables["CUDA_HOME"] == CUDA_12.root
    assert build_of(made).cuda_mismatch == words and words in " ".join(made.notes)
    refused("no-matching-toolkit", source, old)


def test_the_command_that_fetches_repeats_what_was_asked(tmp_path: Path) -> None:
    inside = with_submodules(cuda_source(tmp_path / "submodules/dgr", "dgr"), "glm")
    put(tmp_path, {".git/HEAD": "", "submodules/dgr/glm.cu": "#include <glm/glm.hpp>\n"})
    targets = ("--target", "sm_120", "--target", "sm_90")
    more = ("--backend", "auto", "--jobs", "3", "--index", "of-us", "--offline", "--with-dependencies")
    further = {"backend": "auto", "jobs": 3, "indexes": ("of-us",), "offline": True}
    for changes, options in (({}, targets), (further | {"with_dependencies": True}, (*targets, *more))):
        asked = request_for((str(tmp_path),), ("sm_120", "sm_90"), **changes)
        error = problem_of(make_plan, asked, machine())
        clone, ours = (step.command.argv for step in error.todo if step.command)
        assert clone == ("git", "clone", "--recursive", "https://x.org/glm", f"{inside}/glm")
        assert ours == ("splatfix", "install", str(tmp_path), *options, "--fetch-submodules")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_toolkit_of_ours_comes_first_and_the_build_uses_it(tmp_path: Path, cache: Path) -> None:
    source, facts = cuda_source(tmp_path / "s"), machine(toolkits=(CUDA_12,))
    made = plan(source, facts, provide_toolkit=True)
    first, build = step_of(made, ProvideToolkit), made.steps[1]
    assert made.steps[0] is first and isinstance(build, BuildWheel)
    assert build.variables["CUDA_HOME"] == first.root == f"{cache}/toolkits/cuda-13.0/nvidia/cu13"
    assert f"{first.root}/include/cccl" in build.variables["CPATH"]
    assert first.requirements[0].endswith("==13.0.2"), "not what this torch itself depends on"
    assert "nvidia-nvvm==13.0.*" in first.requirements, "a newer nvvm writes PTX that this ptxas refuses"
    assert any("12.8" in road.what for road in made.considered)
    # nobody downloads a gigabyte without being asked
    error = refused("no-matching-toolkit", source, facts)
    assert "--provide-toolkit" in error.todo[-1].line()
    assert plan(source, machine(), provide_toolkit=True).steps[0].kind == "build-wheel"
    # one that is there is used without asking
    put(cache, {f"toolkits/cuda-13.0/{TOOLKIT_MARKER}": "{}"})
    assert in_cache(System(env={"SPLATFIX_CACHE": "/nowhere"})).value == ()
    there = in_cache(System())
    build = plan(source, changed(facts, own_toolkits=there)).steps[0]
    assert there.value == ("13.0",)
    assert isinstance(build, BuildWheel) and build.variables["CUDA_HOME"].startswith(str(cache))


def test_cuda_12_is_not_provided(tmp_path: Path) -> None:
    old, source = replace(TORCH, version="2.8.0+cu128", cuda="12.8"), cuda_source(tmp_path)
    for made in (own_toolkit(old, "linux"), own_toolkit(TORCH, "windows")):
        assert isinstance(made, Rejected)
    asked, not_asked = (
        refused("no-matching-toolkit", source, machine(torch=old, toolkits=()), provide_toolkit=provide).todo
        for provide in (True, False)
    )
    said = " ".join(step.line() for step in asked)
    assert "--provide-toolkit cannot help: PyPI has no compiler of CUDA 12" in said
    assert not any("--provide-toolkit" in step.line() for step in not_asked)
