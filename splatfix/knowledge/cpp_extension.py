"""How torch.utils.cpp_extension of each torch release behaves: arch lists, compiler bounds, and what it reads and adds."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from splatfix.core import versions
from splatfix.core.versions import dotted
from splatfix.knowledge.archs import Arch
from splatfix.knowledge.rows import rows
from splatfix.knowledge.tables import Version, cached, table, version


def source_of_releases() -> str:
    """Where each release's behaviour was read; also that it builds with its own CUDA major only."""
    return str(table("cpp_extension")["source"]["wheels"])


class Bounds(Struct, frozen=True):
    """A range of compiler versions: ``min <= version < max_exclusive``."""

    min: Version
    max_exclusive: Version

    def allows(self, compiler: Version) -> bool:
        return SpecifierSet(str(self)).contains(dotted(compiler))

    def __str__(self) -> str:
        return f">={dotted(self.min)}, <{dotted(self.max_exclusive)}"


class CppExtension(Struct, frozen=True):
    """One release's cpp_extension, as read in its wheel."""

    release: str
    """The release that was read."""
    supported_arches: tuple[str, ...]
    named_arches: tuple[tuple[str, str], ...]
    """In the order in which torch replaces them."""
    gcc: Mapping[str, Bounds]
    clang: Mapping[str, Bounds]
    native_keyword: bool
    """TORCH_CUDA_ARCH_LIST=native means "the visible GPUs"."""
    extension_name_exempt_from_arch_rule: bool
    """A package name containing "arch" does not switch the arch flags off."""
    accepts_letter_arch_in_torch_list: bool
    """An ``sm_90a`` in torch's own arch list does not crash the look at the visible GPUs."""
    same_minor: bool = True
    """The release asked for is at least of the same minor; if not, the nearest older one speaks for it."""

    def bounds(self, compiler: str, cuda: tuple[int, ...]) -> Bounds | None:
        """torch's bounds on ``gcc`` or ``clang`` for this CUDA (major, minor[, build of nvcc]); None: no row, torch only
        warns."""
        table_of_torch = {"gcc": self.gcc, "clang": self.clang}[compiler]
        bounds = table_of_torch.get(f"{cuda[0]}.{cuda[1]}")
        # torch has one rule for a single build of nvcc: _get_cuda_arch_flags' neighbour, _check_cuda_version
        exception = table("cpp_extension")["special"]
        if bounds and compiler == "gcc" and cuda[:3] == version(exception["nvcc_build"]):
            return replace(bounds, max_exclusive=version(exception["gcc_max_exclusive"]))
        return bounds


class ArchEntry(Struct, frozen=True):
    """One item of an arch list: machine code for ``arch``, and its PTX too if ``ptx``."""

    arch: Arch
    ptx: bool

    def __str__(self) -> str:
        if self.ptx:
            return f"{self.arch.cc}+PTX"
        return self.arch.cc


class ArchList(Struct, frozen=True):
    """What torch compiles for."""

    entries: tuple[ArchEntry, ...]

    @property
    def cubins(self) -> tuple[Arch, ...]:
        """Architectures with machine code, sorted."""
        return tuple(sorted({entry.arch for entry in self.entries}))


class ArchListError(Struct, frozen=True):
    """torch raises instead of compiling."""

    exception: str
    """Its type and text, as torch words it."""
    item: str
    """The item that torch stumbles over ("" when there is none, as after a trailing ';')."""


class UsesVisibleGpus(Struct, frozen=True):
    """The list is unset, empty or ``native``: the GPUs visible at build time decide (``visible_gpu_arch_list``)."""


ArchListResult = ArchList | ArchListError | UsesVisibleGpus


@cached
def _releases() -> Mapping[Version, CppExtension]:
    return {
        version(name): row for name, row in rows(CppExtension, "cpp_extension", "releases", "release").items()
    }


def behaviour(torch_version: str) -> CppExtension | None:
    """The row for a torch version (``2.13.0+cpu`` too); None for a torch older than all rows, or what is no version.

    A release that was not read is spoken for by one of its own minor, else by the nearest older one.
    """
    release = versions.release(torch_version)
    known = _releases()
    candidates = [row for row in known if row[:2] == release[:2]] or [row for row in known if row <= release]
    if not candidates:
        return None
    best = max(candidates)
    return replace(known[best], same_minor=best[:2] == release[:2])


def expand_arch_list(text: str | None, torch_version: str) -> ArchListResult | None:
    """What torch makes of a TORCH_CUDA_ARCH_LIST, by its own rules; None: no row for this torch.

    Blanks separate like ';'. Names are replaced as substrings, in torch's order; an empty item (a trailing ';',
    two blanks) is an error like any unknown one. A test holds this against torch's _get_cuda_arch_flags.
    """
    rules = behaviour(torch_version)
    if rules is None:
        return None
    if not text or (text == "native" and rules.native_keyword):
        return UsesVisibleGpus()
    text = text.replace(" ", ";")
    for name, archs in rules.named_arches:
        text = text.replace(name, archs)
    return _entries(text.split(";"), rules)


def _entries(items: Sequence[str], rules: CppExtension) -> ArchList | ArchListError:
    entries = []
    for item in items:
        number = item.removesuffix("+PTX")
        if number not in rules.supported_arches:
            return ArchListError(f"ValueError: Unknown CUDA arch ({item}) or GPU not supported", item)
        entries.append(ArchEntry(Arch.parse(number), item.endswith("+PTX")))
    return ArchList(tuple(entries))


def visible_gpu_arch_list(
    gpus: Sequence[Arch], torch_arch_list: Sequence[str], torch_version: str
) -> ArchList | ArchListError | None:
    """What torch compiles for when the list is unset: the visible GPUs, clamped to torch's own newest architecture.

    ``gpus`` are capabilities in CUDA's order, ``torch_arch_list`` is torch.cuda.get_arch_list() (``sm_90``,
    ``compute_90`` ...). The strings are sorted as text ("12.0" before "8.6") and only the last gets PTX. None: no
    row for this torch.
    """
    rules = behaviour(torch_version)
    if rules is None:
        return None
    if not gpus:
        return ArchListError("IndexError: list index out of range", "")
    machine_code = [name for name in torch_arch_list if "sm_" in name]
    lettered = next((name for name in machine_code if name[-1].isalpha()), None)
    if lettered and not rules.accepts_letter_arch_in_torch_list:
        number = lettered.split("_")[1]
        return ArchListError(f"ValueError: invalid literal for int() with base 10: '{number}'", lettered)
    if not machine_code:
        return ArchListError("ValueError: max() arg is an empty sequence", "")
    newest = max(Arch.parse(name).plain for name in machine_code)
    items = sorted({min(newest, gpu.plain).cc for gpu in gpus})
    items[-1] += "+PTX"
    return _entries(items, rules)


def arch_flags_switched_off(nvcc_flags: Sequence[str], torch_version: str) -> str | None:
    """The nvcc flag for which torch adds no -gencode at all (it contains "arch"), or None.

    TORCH_CUDA_ARCH_LIST is then ignored; a stray ``-march=native`` in the nvcc flags is enough.
    """
    rules = behaviour(torch_version)
    for flag in nvcc_flags:
        if "TORCH_EXTENSION_NAME" in flag and (rules is None or rules.extension_name_exempt_from_arch_rule):
            continue
        if "arch" in flag:
            return flag
    return None


def compiler_verdict(
    compiler: Literal["gcc", "clang"], compiler_version: Version, cuda: tuple[int, ...], torch_version: str
) -> Literal["ok", "too-old", "too-new", "no-row"] | None:
    """What torch's own table says to a host compiler on Linux; "no-row" is a warning; None: no row for this torch.

    Switched off by TORCH_DONT_CHECK_COMPILER_ABI. nvcc has a table of its own: ``host_compilers``.
    """
    rules = behaviour(torch_version)
    if rules is None:
        return None
    bounds = rules.bounds(compiler, cuda)
    if bounds is None:
        return "no-row"
    if bounds.allows(compiler_version):
        return "ok"
    return "too-old" if compiler_version < bounds.min else "too-new"


def first_release_for_arch(arch: Arch) -> str | None:
    """The oldest torch release read whose cpp_extension takes this architecture in TORCH_CUDA_ARCH_LIST; None: none."""
    for _, row in sorted(_releases().items()):
        if arch.cc in row.supported_arches:
            return row.release
    return None
