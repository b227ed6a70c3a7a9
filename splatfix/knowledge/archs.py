"""GPU architectures: their numbers and names, which toolkits know them, and whose code runs on whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, total_ordering
from typing import Final

from msgspec import Struct, field

from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import cached, pair, table

_SPELLINGS = re.compile(
    r"(?:(?:sm|compute)_?(?P<num>\d{2,3})|(?P<bare>\d{2,3})|(?P<dmajor>\d{1,2})\.(?P<dminor>\d))(?P<variant>[af]?)"
)

# What a help text names of the table: older ones are in it, and nobody needs to be told of them first.
_SHOWN_FROM = 75


class RequestedTarget:
    """What ``--target`` takes: an architecture, or ``AUTO``."""

    __slots__ = ()

    def __str__(self) -> str:
        return "auto"

    def to_json(self) -> str:
        """``sm_120a``, ``auto``"""
        return str(self)

    @classmethod
    def from_json(cls, text: str) -> RequestedTarget:
        """``auto``, or as :func:`parse_target`."""
        return AUTO if text == str(AUTO) else parse_target(text)


AUTO: Final = RequestedTarget()
"""This machine's own GPUs, whichever they are."""


@total_ordering
class Arch(RequestedTarget):
    """A compute capability, and for code the variant: ``a`` (this chip only), ``f`` (its family) or none.

    No struct, because its form in JSON is a text.
    """

    __slots__ = ("major", "minor", "variant")

    def __init__(self, major: int, minor: int, variant: str = "") -> None:
        self.major, self.minor, self.variant = major, minor, variant

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arch) and self._key == other._key

    def __lt__(self, other: Arch) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[int, int, str]:
        return self.major, self.minor, self.variant

    @classmethod
    @lru_cache(maxsize=1024)  # a plan asks tens of thousands of times, of some dozen texts
    def parse(cls, text: str) -> Arch:
        """From ``sm_120a``, ``compute_90``, ``12.0a`` or ``120``; ValueError for anything else (``12.0+PTX`` too)."""
        match = _SPELLINGS.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"{text!r} is not a GPU architecture; write it as sm_120, compute_120, 12.0 or 120."
            )
        if match["dmajor"]:
            return cls(int(match["dmajor"]), int(match["dminor"]), match["variant"])
        return cls.of_number(int(match["num"] or match["bare"]), match["variant"])

    @classmethod
    def known(cls, text: str | None) -> Arch | None:
        """As ``parse``; None where that is no architecture, as a newer driver or torch may name one."""
        try:
            return cls.parse(text or "")
        except ValueError:
            return None

    @classmethod
    def known_among(cls, names: Iterable[str]) -> list[Arch]:
        return [arch for arch in map(cls.known, names) if arch is not None]

    @classmethod
    def of_number(cls, number: int, variant: str = "") -> Arch:
        """From ``120`` (as fat binaries store it) and a variant letter."""
        return cls(number // 10, number % 10, variant)

    @property
    def number(self) -> int:
        """``120`` for 12.0."""
        return self.major * 10 + self.minor

    @property
    def sm(self) -> str:
        """``sm_120a``: machine code (a cubin)."""
        return f"sm_{self.number}{self.variant}"

    @property
    def compute(self) -> str:
        """``compute_120a``: PTX."""
        return f"compute_{self.number}{self.variant}"

    @property
    def cc(self) -> str:
        """``12.0a``: as TORCH_CUDA_ARCH_LIST wants it."""
        return f"{self.major}.{self.minor}{self.variant}"

    @property
    def plain(self) -> Arch:
        return Arch(self.major, self.minor)

    def __str__(self) -> str:
        return self.sm

    __repr__ = __str__


class ArchInfo(Struct, frozen=True):
    """What is known of one architecture. ``first_toolkit`` None: not in the sources; ``last_toolkit`` None: still in."""

    arch: Arch
    name: str
    gpus: tuple[str, ...]
    first_toolkit: tuple[int, int] | None
    tegra: bool
    last_toolkit: tuple[int, int] | None = None
    variants: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """First toolkit of each variant letter."""


@cached
def _archs() -> Mapping[int, ArchInfo]:
    rows = sorted((int(number), row) for number, row in table("archs")["archs"].items())
    return {number: decode(ArchInfo, row, arch=Arch(*pair(row["cc"]))) for number, row in rows}


@cached
def _products() -> list[tuple[re.Pattern[str], Arch]]:
    """Patterns of product names."""
    products = []
    for row in table("archs")["products"].values():
        # people leave out blanks; a number that goes on is another product (RTX 30 in RTX 3080)
        name = row["pattern"].replace(" ", " ?")
        pattern = re.compile(rf"(?<![\w.-])(?:{name})(?!\d)", re.IGNORECASE)
        products.append((pattern, Arch.of_number(row["sm"])))
    return products


def known_archs() -> tuple[Arch, ...]:
    """Every architecture in the table, oldest first, without variants."""
    return tuple(info.arch for info in _archs().values())


def arch_info(arch: Arch) -> ArchInfo | None:
    """The row of this architecture (its letter is ignored), or None when the table lacks it."""
    return _archs().get(arch.number)


@cached
def newest_toolkit() -> tuple[int, int]:
    """The newest CUDA toolkit that the tables speak of; of newer ones nothing is known."""
    firsts = [info.first_toolkit for info in _archs().values() if info.first_toolkit is not None]
    return max(pair(table("archs")["newest_toolkit"]), *firsts)


def family_of(code: Arch) -> frozenset[int]:
    """Device numbers that ``f`` code of this architecture runs on; a number that has no row forms its own family."""
    row = table("archs")["families"].get(str(code.number))
    return frozenset(row["members"] if row else {code.number})


def cubin_runs_on(cubin: Arch, device: Arch, *, build_cuda: tuple[int, int] | None = None) -> bool:
    """Whether machine code for ``cubin`` runs on a GPU of capability ``device``.

    Plain code runs on the same major from its own minor up; ``a`` code on its own chip only; ``f`` code on its
    family. Tegra parts stand apart from their desktop siblings (and sm_101 and sm_110 are one renamed chip),
    except that code of a CUDA >= 13.2 build for 7.0, 8.0 and 8.6 also runs on them.

    Source: CUDA Blackwell compatibility guide; torch's DEVICE_REQUIREMENT (2.15), which a test holds against this.
    """
    rules, number = table("archs"), str(cubin.number)
    # beyond, or not up to, "same major and no newer minor"
    only = rules["only_on"].get(number, {}).get("devices", ())
    excluded = rules["device_exclusions"].get(number, {}).get("not_on", ())
    unified = rules["sbsa_unified"]
    if cubin.variant == "f":
        return device.number in family_of(cubin) or device.number in only
    if cubin.variant:
        return device.number == cubin.number or device.number in only
    newer_minor = device.major == cubin.major and device.minor >= cubin.minor
    if (
        build_cuda is not None
        and build_cuda >= pair(unified["min_build_cuda"])
        and cubin.number in unified["code"]
    ):
        return newer_minor
    if only:
        return device.number in only
    return newer_minor and device.number not in excluded


def ptx_runs_on(ptx: Arch, device: Arch) -> bool:
    """Whether PTX for ``ptx`` can be translated for a GPU of capability ``device``, as far as architectures go.

    Plain PTX suits every GPU of its number or above, of any major; ``a`` its own chip; ``f`` its family. The
    driver must also know the PTX version: see ``drivers.ptx_jit_ok``. Source: ptxas 13.0.88 and 13.5.37.
    """
    if ptx.variant:
        return cubin_runs_on(ptx, device)
    return device.number >= ptx.number


def newest_serving(archs: Iterable[Arch], device: Arch) -> Arch | None:
    """The newest of these whose machine code runs on a GPU, without those that have a letter; None: none does."""
    return max((arch for arch in archs if not arch.variant and cubin_runs_on(arch, device)), default=None)


def toolkit_supports(cuda: tuple[int, int], arch: Arch) -> bool | None:
    """Whether nvcc of this CUDA can target the architecture (with its letter); None when the table cannot say."""
    info = arch_info(arch)
    if info is None:
        return None
    if info.last_toolkit is not None and cuda > info.last_toolkit:
        return False
    if arch.variant:
        since = info.variants.get(arch.variant)
        if since is None and cuda <= newest_toolkit():
            return False
    else:
        since = info.first_toolkit
    if since is not None and cuda < since:
        return False
    if since is None or cuda > newest_toolkit():
        return None
    return True


def _product(name: str) -> tuple[Arch, int] | None:
    """The architecture of a product by its name ("RTX 5080"), and where the match ends; None where no row matches.

    Where several patterns match, the longest match counts ("RTX 4000 Ada" is not a "Quadro RTX 4000").
    """
    product, longest = None, 0
    for pattern, arch in _products():
        match = pattern.search(name)
        if match is not None and len(match[0]) > longest:
            product, longest = (arch, match.end()), len(match[0])
    return product


def split_targets(text: str) -> tuple[str, ...]:
    """``sm_120, sm_89`` or ``8.9;12.0`` (as TORCH_CUDA_ARCH_LIST has it) as its single targets."""
    return tuple(part.strip() for part in re.split(r"[,;]", text) if part.strip()) or (text.strip(),)


def parse_targets(text: str) -> tuple[Arch, ...]:
    """The architectures of a target or of a list of them.

    Raises:
        ValueError: as :func:`parse_target`.
    """
    return tuple(parse_target(part) for part in split_targets(text))


def parse_requested(texts: Iterable[str]) -> tuple[RequestedTarget, ...]:
    """The values of ``--target`` where ``auto`` is one too: ``("sm_90,auto",)`` -> ``(Arch(9, 0), AUTO)``, each once.

    Raises:
        ValueError: as :func:`parse_target`.
    """
    parts = [part for text in texts for part in split_targets(text)]
    return tuple(dict.fromkeys(AUTO if part.lower() == str(AUTO) else parse_target(part) for part in parts))


def parse_target(text: str) -> Arch:
    """The architecture of one target as people type it: ``sm_120``, ``12.0``, ``cc 120``, ``RTX 5080``, ``a6000``, ``hopper``.

    Raises:
        ValueError: with a sentence that says what to write in its place.
    """
    name = text.strip()
    candidates: dict[Arch, str] = {}
    if "+" not in name:
        candidates = _candidates(name)
    if len(candidates) == 1:
        return next(iter(candidates))
    if not candidates:
        raise ValueError(_help(name))
    labels = [f"{arch} ({names})" if names else arch.sm for arch, names in sorted(candidates.items())]
    raise ValueError(f"{name!r} may mean {', '.join(labels)}. Name the one that is meant.")


# What stands before a capability, and the makes that people leave out, put in or run together with a product's name.
_CAPABILITY = re.compile(r"(?:sm|compute(?:[ _-]?capability)?|cc)[ _-]*(?=\d)", re.IGNORECASE)
_MAKER = re.compile(r"(?:nvidia|geforce)[ _-]*", re.IGNORECASE)
_LINE = re.compile(r"(?:rtx|gtx|quadro|tesla|jetson)[ _-]*", re.IGNORECASE)
_FULL_NAMES = (
    *("RTX {}", "GTX {}", "Tesla {}", "Jetson {}", "Titan {}", "Quadro {}"),
    *("Jetson Xavier {}", "Jetson Orin {}", "Quadro RTX {}", "RTX A{}", "RTX {} Ada", "RTX PRO {}"),
)
_ADDED = re.compile(r"(?: ?(?:ti|super|laptop|mobile|gpu|max ?q|series|[mds]|\d+ ?gb))*$", re.IGNORECASE)


def _candidates(text: str) -> dict[Arch, str]:
    """The architectures that a name can mean, each with a product of that name or examples ("" for a number)."""
    arch = Arch.known(_CAPABILITY.sub("", text).lower())
    if arch is not None and arch_info(arch) is not None:
        return {arch: ""}
    name = " ".join(re.split(r"[\s_-]+", _MAKER.sub("", text)))
    product = _product(name)
    if product is not None:
        return {product[0]: ""}
    candidates: dict[Arch, str] = {}
    # a generation by NVIDIA's name (blackwell, ada) or its number (12), or a line of products whose name alone tells none
    word = name.lower()
    for info in _archs().values():
        names = re.findall(r"\w+", info.name.partition("(")[0].lower())
        titans = [gpu for gpu in info.gpus if "Titan" in gpu]
        if word in (info.name.lower(), *names, str(info.arch.major)):
            candidates[info.arch] = ", ".join(info.gpus[:3])
        elif word == "titan" and titans:
            candidates[info.arch] = ", ".join(titans)
    number = _LINE.sub("", name)
    if candidates or len(number) < 2:  # a single sign is part of nearly every name
        return candidates
    # the products of this model number (5080, a6000)
    for full_name in _FULL_NAMES:
        name = full_name.format(number)
        product = _product(name)
        if product is None:
            continue
        arch, end = product
        # the match reaches into what was typed, and nothing is left of it but what models are called in addition
        if end > full_name.index("{") and _ADDED.match(name, end):
            candidates.setdefault(arch, name)
    return candidates


def _help(text: str) -> str:
    if text.startswith("-"):
        return f"--target was given no GPU: {text} is an option. Write --target sm_120, for example."
    base, plus, ptx = text.partition("+")
    if plus and ptx.lower() == "ptx":
        candidates, target = [arch.sm for arch in _candidates(base)], "sm_120"
        if len(candidates) == 1:
            target = candidates[0]
        return (
            f"{text!r} asks for PTX, which is an option of splatfix install and no part of a target: "
            f"--target {target} --ptx"
        )
    names = ", ".join(arch.sm for arch in known_archs() if arch.number >= _SHOWN_FROM)
    return f"{text!r} is not a GPU that splatfix knows. Use {names}, an older one, or a product such as 'RTX 5080'."
