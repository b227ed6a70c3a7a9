"""Proof before installation: a wheel's GPU code, tags and torch symbols are looked at while nothing has been changed."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.binaries import Binary, BinaryError, missing_exports, read_needs, read_wheel
from splatfix.checks.coverage import judge
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.core.step import run, say
from splatfix.facts import Facts, Interpreter, Torch, loaded_fatbins, of_torch
from splatfix.install.distributions import find_installed
from splatfix.install.owned import temporary_folder
from splatfix.install.target import Target
from splatfix.install.wheel_file import WheelFile
from splatfix.knowledge import Arch
from splatfix.knowledge.wheel_tags import WheelTarget, extension_file_fits, python_of_file, tag_fits

_TORCH_LIBRARIES = ("c10", "torch_cpu", "torch_python", "torch", "c10_cuda", "torch_cuda")


def verify_wheel(wheel: WheelFile, targets: Sequence[str], facts: Facts, *, expects_gpu_code: bool) -> Rung:
    """Everything that can be known of a wheel without installing it.

    Args:
        targets: architectures every fatbin of every native member must serve.
        expects_gpu_code: the source holds CUDA code, so a wheel without any is wrong.

    Returns:
        The rung ``built``, with what shows it.

    Raises:
        SplatfixError: ``wheel-does-not-fit``, ``wrong-gpu-code``, ``no-gpu-code``, ``torch-symbols-missing``.
    """
    interpreter = facts.environment.interpreter.value
    assert interpreter is not None
    _check_tags(wheel, interpreter)
    try:
        natives = read_wheel(wheel.path)
    except BinaryError as error:
        raise SplatfixError(
            "wheel-does-not-fit",
            f"A native file in {wheel.path.name} is damaged: {error}.",
            meaning="Nothing was installed.",
        ) from error
    _check_suffixes(wheel, natives, interpreter)
    carrying = [binary for binary in natives if any(not box.empty for box in binary.fatbins)]
    if expects_gpu_code and not carrying:
        raise SplatfixError(
            "no-gpu-code",
            f"{wheel.path.name} carries no GPU code although its source has CUDA files.",
            meaning="It was built without CUDA; nothing was installed.",
            todo=(
                say(
                    "Look in the build log for the reason, and at variables of its setup.py such as BUILD_NO_CUDA."
                ),
            ),
        )
    driver = facts.machine.driver.value
    said = [_check_code(binary, targets, driver.cuda if driver else None) for binary in carrying]
    checked = _check_symbols(wheel, natives, facts.environment.torch.value)
    if not natives:
        return Rung(
            RungName.BUILT,
            True,
            "pure Python, fits this interpreter; it has no GPU code of its own and needs none",
        )
    if not said:
        return Rung(RungName.BUILT, True, f"native code for the CPU only, fits this interpreter; {checked}")
    return Rung(RungName.BUILT, True, f"{'; '.join(said)}; {checked}")


def refuse_unplanned(wheel: WheelFile, subject: str, target: Target) -> None:
    """A source may call itself otherwise than its setup.py let expect; nothing is replaced that the plan did not name.

    Raises:
        SplatfixError: ``replaces-unplanned``.
    """
    if canonicalize_name(wheel.name) == canonicalize_name(subject):
        return
    for there in find_installed(target, wheel.name):
        raise SplatfixError(
            "replaces-unplanned",
            f"The build of {subject} made a wheel called {wheel.name}, and {there.name} {there.version} is installed.",
            meaning="Installing it would replace a package that the plan did not name; nothing was installed.",
            todo=(
                run(
                    "pip",
                    "uninstall",
                    wheel.name,
                    text="Look at the name that its setup.py computes. "
                    f"If {wheel.name} is really to be replaced, remove it first",
                ),
            ),
        )


def _check_code(binary: Binary, targets: Sequence[str], driver_cuda: str | None) -> str:
    member = binary.path.rpartition("!")[2]
    filled = loaded_fatbins(binary.fatbins)
    roads = []
    for name in targets:
        coverage = judge(filled, Arch.parse(name), driver_cuda=driver_cuda)
        if not coverage.usable:
            carried = ", ".join(f"{kind.value} {arch}" for kind, arch in binary.archs) or "nothing"
            raise SplatfixError(
                "wrong-gpu-code",
                f"{member} cannot run on {name}: {coverage.reason} (it carries {carried}).",
                meaning="The build ignored the architecture it was told; nothing was installed.",
                todo=(
                    say(
                        "Look for -arch or -gencode in its setup.py; what is written there wins over every variable."
                    ),
                ),
                details={
                    "member": member,
                    "target": name,
                    "carries": [f"{k.value} {a}" for k, a in binary.archs],
                },
            )
        roads.append(f"{name} ({'machine code' if coverage.via == 'sass' else coverage.via})")
    count = f"{len(filled)} fatbin{'s' if len(filled) > 1 else ''}"
    return f"{member}: {', '.join(roads)} in every one of its {count}"


def _check_tags(wheel: WheelFile, interpreter: Interpreter) -> None:
    if any(fits(tag, interpreter) for tag in wheel.tags):
        return
    raise SplatfixError(
        "wheel-does-not-fit",
        f"{wheel.path.name} is for {', '.join(wheel.tags)}, not for Python {interpreter.version} on {interpreter.platform_tag}.",
        meaning="It was built by another interpreter; nothing was installed.",
        todo=(say("Build it with the interpreter it is meant for."),),
    )


def fits(tag: str, interpreter: Interpreter) -> bool:
    """Whether a wheel tag such as ``cp311-cp311-linux_x86_64`` suits the interpreter, by pip's rules."""
    major, minor = (int(part) for part in interpreter.version.split(".")[:2])
    free_threaded = re.match(r"(cpython-|cp)\d+t", interpreter.abi_tag) is not None
    platform = re.sub(r"[-.]", "_", interpreter.platform_tag)
    return tag_fits(tag, WheelTarget((major, minor), platform, free_threaded=free_threaded))


def _check_suffixes(wheel: WheelFile, natives: Iterable[Binary], interpreter: Interpreter) -> None:
    for binary in natives:
        member = binary.path.rpartition("!")[2]
        name = member.rpartition("/")[2]
        if python_of_file(name) and not extension_file_fits(name, interpreter.abi_tag):
            raise SplatfixError(
                "wheel-does-not-fit",
                f"{member} is made for {name.split('.')[1]}, this interpreter loads {interpreter.abi_tag}.",
                meaning="Python would not find the module; nothing was installed.",
                todo=(
                    say(
                        "Remove compiled files of other Pythons from the source folder, then run this again."
                    ),
                ),
            )


def _check_symbols(wheel: WheelFile, natives: Sequence[Binary], torch: Torch | None) -> str:
    """Every undefined torch symbol is exported by the installed torch, or by another library of the same wheel."""
    members = [item.path.rpartition("!")[2] for item in natives if item.format == "elf"]
    if torch is None or not members:
        return "needs nothing of torch"
    folder = Path(torch.folder) / "lib"
    libraries = [path for name in _TORCH_LIBRARIES if (path := folder / f"lib{name}.so").is_file()]
    count = 0
    with (
        zipfile.ZipFile(wheel.path) as archive,
        temporary_folder("splatfix-verify-") as temporary,
    ):
        unpacked = {member: Path(archive.extract(member, temporary)) for member in members}
        for member, path in unpacked.items():
            names = [name for name in read_needs(path).imported if of_torch(name)]
            siblings = [other for other in unpacked.values() if other != path]
            lost = missing_exports(names, [*libraries, *siblings])
            if lost:
                raise _symbols_missing(member, lost, torch)
            count += len(names)
    return f"all {count} torch symbols found in torch {torch.version}" if count else "needs nothing of torch"


def _symbols_missing(member: str, lost: Sequence[str], torch: Torch) -> SplatfixError:
    return SplatfixError(
        "torch-symbols-missing",
        f"{member} needs {len(lost)} symbols that torch {torch.version} does not have, such as {lost[0]}.",
        meaning="It was compiled against another torch and would not load; nothing was installed.",
        todo=(say("Remove compiled files from the source folder, then run this again."),),
        details={"member": member, "missing": list(lost[:50])},
    )
