"""The criterion that what ran is what was installed."""

from msgspec.structs import replace

from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.loaded_files import LoadedCode
from splatfix.certify.model import Criterion
from splatfix.core.step import Command
from splatfix.core.words import counted, few

CODE = "code-as-installed"


def as_installed(code: LoadedCode | None, python: str = "python") -> tuple[Criterion, ...]:
    """Fail for each file that ran and differs from what its wheel installed, and name what has no digest to compare with.

    There is no criterion where nothing was loaded yet. ``python`` is the interpreter for the commands that mend it.
    """
    if code is None:
        return ()
    texts = [item.text for item in code.differences]
    if not texts and code.compared:
        texts.append(
            f"{counted(code.compared, 'file')} of {few(code.distributions)} are as they were installed"
        )
    if code.unknown:
        texts.append(f"not known: {few(code.unknown, 3)}")
    met: bool | None = not code.differences
    if met and not code.compared:
        met = None
    item = criterion(CODE, met, few(texts, between="; "))
    names = dict.fromkeys(item.distribution for item in code.differences if item.distribution)
    repairs = [Command(("splatfix", "install", "--repair", name, "--python", python)) for name in names]
    advice = [command.shell(windows=False) for command in repairs]
    if any(not item.distribution for item in code.differences):
        advice.append(
            "look into the named files, and remove what is not wanted (a .pth file or sitecustomize loads them)"
        )
    return (replace(item, advice="; ".join(advice)),)
