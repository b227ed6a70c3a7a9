from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from splatfix.checks import run_checks, select
from splatfix.context import Goal, make_context
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.proof import RungName
from splatfix.facts import Fact, Facts, Gpu, ToolkitChoice
from splatfix.plan import BuildWheel, InstallPlan, InstallWheel, plan_install
from splatfix.plan.steps import InstallDependencies, MakeDropin
from tests.archs import archs, goal, request_for
from tests.plan.machines import argv, make_plan

from .machines import CUDA_12, CUDA_13, INTERPRETER, TORCH, compilers, cuda_source, machine


def plan(source: Path, facts: Facts | None = None, **request: object) -> InstallPlan:
    asked = {"targets": ("sm_120",)} | request
    return make_plan(request_for((str(source),), **asked), facts or machine())  # type: ignore[arg-type]


def build_of(made: InstallPlan) -> BuildWheel:
    return next(action for action in made.steps if isinstance(action, BuildWheel))


def refused(code: str, *arguments: object, **options: object) -> SplatfixError:
    with pytest.raises(SplatfixError) as caught:
        plan(*arguments, **options)  # type: ignore[arg-type]
    assert caught.value.code == code, caught.value.what
    assert caught.value.todo, "it does not say what to do"
    return caught.value


def test_all_is_built_and_verified_before_installing(tmp_path: Path) -> None:
    folders = [cuda_source(tmp_path / name, name) for name in ("aa", "bb")]
    made = make_plan(
        request_for(tuple(map(str, folders)), ("sm_120",)), machine(packages=_PACKAGES | {"bb": "3.0"})
    )
    assert [(action.kind, action.subject) for action in made.steps] == [
        ("build-wheel", "aa"),
        ("build-wheel", "bb"),
        ("verify-wheel", "aa"),
        ("verify-wheel", "bb"),
        ("install-wheel", "aa"),
        ("check-import", "aa"),
        ("install-wheel", "bb"),
        ("check-import", "bb"),
    ]
    replaced = [action.replaces for action in made.steps if isinstance(action, InstallWheel)]
    assert replaced == ["", "3.0"]
    assert to_json(made)["schema_version"] == 2


def test_what_only_shines_through_is_not_replaced(tmp_path: Path) -> None:
    """A distribution of another environment, seen through a .pth file, stays where it is."""
    facts = machine(packages=_PACKAGES | {"dgr": "1.0"})
    found = facts.environment.distributions.value or ()
    elsewhere = tuple(dataclasses.replace(item, location="/other/site-packages") for item in found)
    moved = dataclasses.replace(facts.environment, distributions=Fact(elsewhere, "test"))
    made = plan(cuda_source(tmp_path), dataclasses.replace(facts, environment=moved))
    assert [action.replaces for action in made.steps if isinstance(action, InstallWheel)] == [""]


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
    assert build_of(plan(cuda_source(tmp_path), facts, jobs=7)).variables["MAX_JOBS"] == "7"


def test_several_targets_and_the_machines_own_gpus(tmp_path: Path) -> None:
    gpus = (Gpu(0, "RTX 5090", cc="12.0"), Gpu(1, "RTX 3090", cc="8.6"), Gpu(2, "RTX 5080", cc="12.0"))
    made = plan(cuda_source(tmp_path), machine(gpus=gpus), targets=("auto", "sm_90"))
    assert made.targets == archs("sm_120", "sm_86", "sm_90")
    assert build_of(made).variables["TORCH_CUDA_ARCH_LIST"] == "12.0;8.6;9.0"
    assert plan(cuda_source(tmp_path), machine(gpus=gpus), targets=()).targets == archs("sm_120", "sm_86")


def test_no_gpu_to_ask_is_undetermined(tmp_path: Path) -> None:
    error = refused("no-gpu-to-target", cuda_source(tmp_path), targets=("auto",))
    assert error.exit_code is Exit.UNDETERMINED
    blind = machine(gpus=(Gpu(0, "NVIDIA PCI device 2b85"),))
    assert "2b85" in refused("no-gpu-to-target", cuda_source(tmp_path), blind, targets=()).what


def test_an_arch_that_torch_lacks_but_older_code_serves(tmp_path: Path) -> None:
    """sm_121 (GB10) runs sm_120 code; a torch that cannot say 12.1 builds for 12.0."""
    made = plan(cuda_source(tmp_path), targets=("sm_121",))
    assert made.targets == archs("sm_121")
    assert build_of(made).variables["TORCH_CUDA_ARCH_LIST"] == "12.0"
    error = refused("arch-unknown-to-torch", cuda_source(tmp_path), targets=("sm_121a",))
    assert "2.8" in error.todo[0].text


def test_the_closest_toolkit_of_torchs_major_wins(tmp_path: Path) -> None:
    newer = dataclasses.replace(CUDA_13, root="/usr/local/cuda-13.2", version="13.2.1")
    made = plan(cuda_source(tmp_path), machine(toolkits=(newer, CUDA_12, CUDA_13)))
    assert build_of(made).variables["CUDA_HOME"] == CUDA_13.root
    considered = {item.what: item.why for item in made.considered}
    assert "another major" in considered["toolkit /usr/local/cuda-12.8"]
    assert "also fits" in considered["toolkit /usr/local/cuda-13.2"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "12.8.93"}, "another major than its own 13"),
        ({"archs": ("sm_75", "sm_80")}, "cannot compile for sm_120"),
        ({"nvcc": None, "version": None, "error": "nvcc does not start"}, "nvcc does not start"),
        ({"missing": ("include/cuda_runtime.h",)}, "incomplete: include/cuda_runtime.h"),
    ],
)
def test_toolkits_that_do_not_fit(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    bad = dataclasses.replace(CUDA_13, **changes)  # type: ignore[arg-type]
    error = refused("no-matching-toolkit", cuda_source(tmp_path), machine(toolkits=(bad,)))
    assert words in error.what and "conda install" in " ".join(step.line() for step in error.todo)


def test_no_toolkit_at_all(tmp_path: Path) -> None:
    assert (
        "none was found" in refused("no-matching-toolkit", cuda_source(tmp_path), machine(toolkits=())).what
    )


def test_a_slim_toolkit_without_cublas_headers_will_do(tmp_path: Path) -> None:
    slim = dataclasses.replace(CUDA_13, missing=("include/cublas_v2.h",))
    site = tmp_path / "site-packages"
    headers = site / "nvidia" / "cu13" / "include"
    headers.mkdir(parents=True)
    (headers / "cublas_v2.h").write_text("")
    torch = dataclasses.replace(TORCH, folder=str(site / "torch"))
    build = build_of(plan(cuda_source(tmp_path / "x"), machine(torch=torch, toolkits=(slim,))))
    assert build.variables["CPATH"] == str(headers)


def test_a_named_toolkit_is_the_only_one_considered(tmp_path: Path) -> None:
    facts = machine(toolkits=(CUDA_13, CUDA_12))
    assert (
        "/usr/local/cuda-12.8 does not fit"
        in refused("no-matching-toolkit", cuda_source(tmp_path), facts, cuda_home=CUDA_12.root).what
    )
    refused("no-toolkit-there", cuda_source(tmp_path), facts, cuda_home=str(tmp_path))
    made = plan(cuda_source(tmp_path), facts, cuda_home=CUDA_13.root + "/")
    assert build_of(made).variables["CUDA_HOME"] == CUDA_13.root


def test_the_newest_compiler_within_all_limits(tmp_path: Path) -> None:
    """gcc 16 is too new for nvcc 13.0 (15), so the newest versioned one below it is taken."""
    made = plan(cuda_source(tmp_path), machine(host=compilers("16.1.0", "13.3.0", "14.2.0")))
    assert build_of(made).variables["CXX"] == "/usr/bin/g++-14"
    assert build_of(made).variables["CC"] == "/usr/bin/gcc-14"
    considered = {item.what: item.why for item in made.considered}
    assert "nvcc 13.0.88 accepts up to gcc 15" in considered["compiler /usr/bin/g++"]


def test_torchs_own_compiler_table_counts_too(tmp_path: Path) -> None:
    """torch 2.11 refuses gcc 14 with CUDA 12.8 although that nvcc takes it."""
    torch = dataclasses.replace(TORCH, version="2.11.0+cu128", cuda="12.8")
    facts = machine(torch=torch, toolkits=(CUDA_12,), host=compilers("14.2.0", "13.3.0"))
    assert build_of(plan(cuda_source(tmp_path), facts)).variables["CXX"] == "/usr/bin/g++-13"
    only_14 = machine(torch=torch, toolkits=(CUDA_12,), host=compilers("14.2.0"))
    assert (
        "too new for torch 2.11.0+cu128" in refused("no-host-compiler", cuda_source(tmp_path), only_14).what
    )


def test_the_persons_own_compiler_comes_first(tmp_path: Path) -> None:
    mine = compilers("13.1.0", folder="/opt/gcc/bin", via="CXX")
    made = plan(cuda_source(tmp_path), machine(host=(*compilers("12.2.0"), *mine)))
    assert build_of(made).variables["CXX"] == "/opt/gcc/bin/g++"


def test_half_a_compiler_is_none(tmp_path: Path) -> None:
    only_cxx = tuple(item for item in compilers("12.2.0") if item.kind == "g++")
    assert (
        "C compiler of the same version"
        in refused("no-host-compiler", cuda_source(tmp_path), machine(host=only_cxx)).what
    )
    assert "none was found" in refused("no-host-compiler", cuda_source(tmp_path), machine(host=())).what


@pytest.mark.parametrize(
    ("packages", "lacking", "present"),
    [
        ({"pip": "25"}, ("setuptools", "wheel", "ninja"), ()),
        ({"pip": "25", "setuptools": "65.5.0", "ninja": "1.11"}, ("wheel",), ("setuptools", "ninja")),
        ({"pip": "25", "setuptools": "70.1"}, ("ninja",), ("wheel",)),
    ],
)
def test_build_tools(
    tmp_path: Path, packages: dict[str, str], lacking: tuple[str, ...], present: tuple[str, ...]
) -> None:
    error = refused("build-tools-missing", cuda_source(tmp_path), machine(packages=packages))
    command = error.todo[0].line()
    assert command.startswith("/env/bin/python -m pip install ")
    assert all(name in command for name in lacking) and not any(name in command for name in present)


REQUIRES = """install_requires=["ninja", "numpy", "jaxtyping", "rich>=12", "torch>=2.0",
                        "typing_extensions; python_version<'3.8'"], """


def importing(folder: Path) -> Path:
    cuda_source(folder)
    script = folder / "setup.py"
    script.write_text(script.read_text().replace("ext_modules=", f"{REQUIRES}ext_modules="))
    return folder


def test_what_it_imports_is_looked_for_before_it_is_compiled(tmp_path: Path) -> None:
    """gsplat names jaxtyping and rich: without them it would fail at the import, 40 minutes later."""
    there = _PACKAGES | {"numpy": "2.1", "rich": "10.2"}
    error = refused("build-tools-missing", importing(tmp_path), machine(packages=there))
    assert "jaxtyping, rich>=12 to be imported" in error.what and "to be built" not in error.what
    assert argv(error.todo[0])[1:] == ("-m", "pip", "install", "jaxtyping", "rich>=12")
    whole = there | {"rich": "13.9", "jaxtyping": "0.2"}
    assert build_of(plan(importing(tmp_path), machine(packages=whole))).subject == "dgr"
    old = dataclasses.replace(INTERPRETER, version="3.7.9")
    error = refused("build-tools-missing", importing(tmp_path), machine(packages=whole, interpreter=old))
    assert "typing_extensions" in error.what, "markers are those of the target's Python, not of ours"


def test_an_import_of_unknown_origin_is_named_before_the_build(tmp_path: Path) -> None:
    folder = cuda_source(tmp_path / "dgr")
    (folder / "dgr").mkdir()
    (folder / "dgr" / "__init__.py").write_text("import torch\nfrom house_made import scan\n")
    facts = machine(packages=_PACKAGES)
    facts = dataclasses.replace(
        facts, environment=dataclasses.replace(facts.environment, modules=Fact(("torch",), "test"))
    )
    made = plan(folder, facts)
    assert any("house_made" in note and "dgr" in note for note in made.notes), made.notes
    (folder / "requirements.txt").write_text("numpy\nhouse-made\n")
    made = plan(folder, facts, with_dependencies=True)
    assert not any("house_made" in note for note in made.notes)
    assert (
        "house-made"
        in next(step for step in made.steps if isinstance(step, InstallDependencies)).requirements
    )


def test_torch_is_never_changed_for_a_source(tmp_path: Path) -> None:
    there = _PACKAGES | {"numpy": "2.1", "rich": "13.0", "jaxtyping": "0.2"}
    old = dataclasses.replace(TORCH, version="1.13.1+cu130")
    error = refused("torch-does-not-fit", importing(tmp_path), machine(packages=there, torch=old))
    assert "torch>=2.0" in error.what and not any(item.command for item in error.todo)


@pytest.mark.parametrize("where", ["setup.py", "setup.cfg", "pyproject.toml"])
def test_a_source_for_another_python_is_refused_early(tmp_path: Path, where: str) -> None:
    folder = cuda_source(tmp_path / "dgr")
    texts = {
        "setup.py": (folder / "setup.py")
        .read_text()
        .replace("ext_modules=", 'python_requires="{}", ext_modules='),
        "setup.cfg": "[options]\npython_requires = {}\n",
        "pyproject.toml": '[project]\nname = "dgr"\nversion = "1"\nrequires-python = "{}"\n',
    }
    for wanted, fits in ((">=3.12", False), (">=3.9,<3.11", False), (">=3.10", True), ("three", True)):
        (folder / where).write_text(texts[where].replace("{}", wanted))
        if fits:
            assert build_of(plan(folder)).subject
            continue
        error = refused("python-does-not-fit", folder)
        assert f"asks for Python {wanted}, and /env/bin/python is Python 3.11.7" in error.what


def test_an_environment_without_pip(tmp_path: Path) -> None:
    assert "ensurepip" in refused("no-pip", cuda_source(tmp_path), machine(packages={})).todo[0].line()


def test_the_systems_own_python_is_left_alone(tmp_path: Path) -> None:
    system = dataclasses.replace(INTERPRETER, externally_managed=True)
    refused("externally-managed", cuda_source(tmp_path), machine(interpreter=system))


def test_what_a_project_removes_again_is_said(tmp_path: Path) -> None:
    locked = dataclasses.replace(INTERPRETER, lock_file="/project/uv.lock")
    request = request_for(("fused_ssim",), backend="pure")
    with_lock, without = (make_plan(request, machine(interpreter=item)) for item in (locked, INTERPRETER))
    (note,) = set(with_lock.notes) - set(without.notes)
    assert "`uv sync`" in note


def test_torch_absent_damaged_or_for_other_hardware(tmp_path: Path) -> None:
    error = refused("no-torch", cuda_source(tmp_path), machine(torch=None))
    (diagnosed,) = run_checks(
        make_context(machine(torch=None), goal("sm_120")), select(("torch-missing",), ())
    )
    assert error.todo[0].line() in [item.line() for item in diagnosed.remedy if item.command]
    assert "pip" in argv(error.todo[0]) and "/whl/cu1" in argv(error.todo[0])[-1]
    pure = request_for(("fused_ssim",), backend="pure")
    with pytest.raises(SplatfixError) as caught:
        make_plan(pure, machine(torch=None))
    assert argv(caught.value.todo[0]) == ("/env/bin/python", "-m", "pip", "install", "torch")
    damaged = machine()
    lost = dataclasses.replace(damaged.environment, torch=Fact(None, "", "version.py is damaged"))
    refused("torch-unreadable", cuda_source(tmp_path), dataclasses.replace(damaged, environment=lost))
    rocm = dataclasses.replace(TORCH, cuda=None, hip="6.2")
    assert "ROCm" in refused("cpu-only-torch", cuda_source(tmp_path), machine(torch=rocm)).what


def test_a_source_without_cuda_needs_no_toolkit_and_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text('setup(name="rdel", ext_modules=[CppExtension("rdel", ["r.cpp"])])')
    (tmp_path / "r.cpp").write_text("")
    cpu = dataclasses.replace(TORCH, cuda=None)
    made = plan(tmp_path, machine(torch=cpu, toolkits=()), targets=())
    assert build_of(made).variables == {"MAX_JOBS": "8"} and made.targets == ()
    refused("no-host-compiler", tmp_path, machine(torch=cpu, toolkits=(), host=()), targets=())


def test_pure_plans(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text('setup(name="fused_ssim", ext_modules=[])')
    cpu = machine(torch=dataclasses.replace(TORCH, cuda=None), packages=_PACKAGES | {"simple_knn": "0.0.0"})
    made = make_plan(request_for((str(tmp_path), "simple_knn", "fused-ssim"), backend="pure"), cpu)
    assert made.subjects == ("fused-ssim", "simple-knn")
    assert [a.replaces for a in made.steps if isinstance(a, InstallWheel)] == ["", "0.0.0"]
    assert made.targets == () and made.notes
    with pytest.raises(SplatfixError) as caught:
        make_plan(request_for(("x",), backend="magic"), cpu)
    assert caught.value.exit_code is Exit.USAGE


def test_plans_with_kernels_that_nvrtc_compiles() -> None:
    """No toolkit, no host compiler; but a CUDA torch and a target."""
    bare = machine(toolkits=(), host=())
    asked = request_for(("fused_ssim", "diff_gaussian_rasterization@mip"), ("sm_120",), backend="nvrtc")
    made = make_plan(asked, bare)
    drop_ins = [step for step in made.steps if isinstance(step, MakeDropin)]
    assert [step.targets for step in drop_ins] == [archs("sm_120")] * 2 and "by NVRTC" in drop_ins[0].text
    assert (made.backend, made.targets) == ("nvrtc", archs("sm_120"))
    assert RungName.BUILT in made.proves and RungName.COMPUTES not in made.proves
    assert "No GPU has run these kernels yet" in made.notes[0]

    def code(facts: Facts, *sources: str, targets: tuple[str, ...] = ("sm_120",)) -> str:
        request = request_for(sources, targets, backend="nvrtc")
        with pytest.raises(SplatfixError) as caught:
            plan_install(request, make_context(facts, goal(*targets)))
        return caught.value.code

    assert code(machine(torch=dataclasses.replace(TORCH, cuda=None)), "fused_ssim") == "cpu-only-torch"
    assert code(bare, "fused_ssim", targets=()) == "no-gpu-to-target"
    assert code(bare, "diff_gaussian_rasterization@gof") == "nothing-replaces-it"


def test_fixed_archs_without_the_target_are_edited_away(tmp_path: Path) -> None:
    folder = cuda_source(tmp_path, flags='"-O3", "-gencode=arch=compute_70,code=sm_70"')
    build = build_of(plan(folder))
    assert build.variables["TORCH_CUDA_ARCH_LIST"] == "12.0"
    assert [edit.rule for edit in build.edits] == ["fixed-architectures"]
    said = " | ".join(reason.text for reason in build.reasons)
    assert "an edit takes the architectures out" in said and "names no architecture" not in said
    assert "compute_70" in (folder / "setup.py").read_text(), "the checkout was edited"
    kept = cuda_source(tmp_path / "b", flags='"-gencode=arch=compute_120,code=sm_120"')
    assert build_of(plan(kept)).edits == ()


def test_numbers_that_no_rule_can_edit_are_refused(tmp_path: Path) -> None:
    before = 'pairs = ["arch=compute_75,code=sm_75"]\n'
    refused(
        "arch-fixed-in-source", cuda_source(tmp_path, flags='"-gencode"] + pairs + ["-O3"', before=before)
    )


COMPUTED = """
known = ["-gencode=arch=compute_75,code=sm_75", "-gencode=arch=compute_89,code=sm_89"]
flags = ["-O3"]
if torch.cuda.is_available():
    name = "sm_%d%d" % torch.cuda.get_device_capability(0)
    flags.append(f"-arch={name}")
else:
    flags.extend(known)
"""


@pytest.mark.parametrize("target", ["sm_120", "sm_89"])
def test_computed_archs_are_edited_away(tmp_path: Path, target: str) -> None:
    """The shape of fused-ssim between March 2025 and CUDA_ARCHITECTURES: the builder's GPU, or a list, decides."""
    folder = cuda_source(tmp_path, flags="*flags", before=COMPUTED)
    (folder / "setup.py").write_text((folder / "setup.py").read_text().replace("[*flags]", "flags"))
    build = build_of(plan(folder, targets=(target,)))
    assert {edit.rule for edit in build.edits} == {"computed-architecture", "fixed-architectures"}
    assert build.variables["TORCH_CUDA_ARCH_LIST"] == ("12.0" if target == "sm_120" else "8.9")


def test_an_old_gpu_is_refused_what_its_instructions_lack(tmp_path: Path) -> None:
    torch = dataclasses.replace(TORCH, version="2.6.0+cu126", cuda="12.6", knows_archs=("6.1", "7.5"))
    old = dataclasses.replace(
        CUDA_12, root="/usr/local/cuda-12.6", version="12.6.20", archs=("sm_61", "sm_75")
    )
    facts = machine(torch=torch, toolkits=(old,))
    folder = cuda_source(tmp_path)
    (folder / "x.cu").write_text("auto same = cg::labeled_partition(warp, id);")
    assert "6.1" in refused("refused-by-rule", folder, facts, targets=("sm_75", "sm_61")).what
    assert build_of(plan(folder, facts, targets=("sm_75",))).edits == ()


def test_auto_is_the_first_that_is_possible(tmp_path: Path) -> None:
    source = cuda_source(tmp_path / "a", "simple_knn")
    assert plan(source, backend="auto").backend == "native"
    cpu = machine(torch=dataclasses.replace(TORCH, cuda=None))
    made = plan(source, cpu, backend="auto")
    assert made.backend == "pure" and made.subjects == ("simple-knn",)
    assert "CPU-only" in made.considered[0].why and "CPU-only" in made.notes[0]
    bare = machine(toolkits=())
    made = plan(source, bare, backend="auto")
    assert (made.backend, made.targets) == (
        "nvrtc",
        archs("sm_120"),
    ) and "CUDA kernels by NVRTC" in made.notes[0]
    surfels = cuda_source(tmp_path / "c", "diff_surfel_rasterization")
    assert plan(surfels, bare, backend="auto").backend == "nvrtc"
    # what nothing replaces keeps the reason why it cannot be built; what is wrong with the request is no reason to swap
    refused("cpu-only-torch", cuda_source(tmp_path / "b", "diff_plane_rasterization"), cpu, backend="auto")
    refused("not-a-folder", tmp_path / "nowhere", cpu, backend="auto")


def test_in_place_edits_the_checkout_after_the_proof(tmp_path: Path) -> None:
    source = cuda_source(tmp_path)
    (source / "x.cu").write_text("float a = FLT_MAX;\n")
    kinds = [action.kind for action in plan(source, in_place=True).steps]
    assert kinds == ["build-wheel", "verify-wheel", "edit-source", "install-wheel", "check-import"]
    assert "edit-source" not in [action.kind for action in plan(source).steps]


def test_a_plan_remembers_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_source(tmp_path / "ext")
    monkeypatch.chdir(tmp_path)
    made = make_plan(request_for(("ext",), ("sm_120",)), machine())
    assert made.request == request_for((str((tmp_path / "ext").resolve()),), ("sm_120",))


def test_a_forced_mismatch_is_a_last_resort_and_is_said(tmp_path: Path) -> None:
    source = cuda_source(tmp_path)
    both = plan(source, machine(toolkits=(CUDA_12, CUDA_13)), force_cuda_mismatch=True)
    assert build_of(both).variables["CUDA_HOME"] == CUDA_13.root and build_of(both).cuda_mismatch == ""
    forced = plan(source, machine(toolkits=(CUDA_12,)), force_cuda_mismatch=True)
    assert build_of(forced).variables["CUDA_HOME"] == CUDA_12.root
    words = "compiled with CUDA 12.8.93, torch is built with CUDA 13.0"
    assert build_of(forced).cuda_mismatch == words and words in " ".join(forced.notes)
    refused("no-matching-toolkit", source, machine(toolkits=(CUDA_12,)))


def test_the_command_that_fetches_repeats_what_was_asked(tmp_path: Path) -> None:
    inside = cuda_source(tmp_path / "submodules/dgr", "dgr")
    (inside / ".gitmodules").write_text('[submodule "g"]\n\tpath = glm\n\turl = https://x.org/g\n')
    (inside / "glm.cu").write_text("#include <glm/glm.hpp>\n")
    (tmp_path / ".git").mkdir()
    asked = request_for((str(tmp_path),), ("sm_120", "sm_90"))
    with pytest.raises(SplatfixError) as caught:
        plan_install(asked, make_context(machine(), Goal(asked.targets)))
    clone, ours = (step.command.argv for step in caught.value.todo if step.command)
    assert clone == ("git", "clone", "--recursive", "https://x.org/g", f"{inside}/glm")
    targets = ("--target", "sm_120", "--target", "sm_90")
    assert ours == ("splatfix", "install", str(tmp_path), *targets, "--fetch-submodules")
