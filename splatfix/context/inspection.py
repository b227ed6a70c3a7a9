"""Which named files run on which named GPUs: what ``splatfix inspect`` answers."""

from msgspec import Struct

from splatfix.context.coverage import Coverage, judge
from splatfix.core.errors import Exit
from splatfix.facts import Binary, NativeFiles
from splatfix.knowledge.archs import Arch
from splatfix.model import loaded_fatbins


class InspectedFile(Struct, frozen=True):
    """One native file and its verdict per target; no verdicts when it carries no GPU code."""

    binary: Binary
    verdicts: tuple[Coverage, ...]

    @property
    def carries_gpu_code(self) -> bool:
        """At least one fatbin is not empty."""
        return any(fatbin.entries for fatbin in self.binary.fatbins)


class Inspection(Struct, frozen=True):
    """All files, the targets they were judged for, and what could not be read."""

    targets: tuple[str, ...]
    files: tuple[InspectedFile, ...]
    unreadable: tuple[tuple[str, str], ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """What the system did not let be read, so that nothing is said of it."""

    @property
    def exit_code(self) -> Exit:
        """1: a file cannot run on a target, or is damaged; 3: there is no native file, or targets were named, but nothing
        carries GPU code or something could not be looked at; else 0."""
        if self.unreadable or any(not item.usable for file in self.files for item in file.verdicts):
            return Exit.FAILURE
        if self.targets and (self.skipped or not any(file.carries_gpu_code for file in self.files)):
            return Exit.UNDETERMINED
        return Exit.OK if self.files else Exit.UNDETERMINED


def inspect_files(native: NativeFiles, targets: tuple[str, ...]) -> Inspection:
    """Judge every file that carries GPU code for every target (names as ``sm_120``)."""
    archs = [Arch.parse(name) for name in targets]
    files = []
    for binary in native.binaries:
        loaded = loaded_fatbins(binary.fatbins)
        verdicts = tuple(judge(loaded, arch) for arch in archs) if loaded else ()
        files.append(InspectedFile(binary, verdicts))
    return Inspection(targets, tuple(files), native.unreadable, native.skipped)
