"""What a setup.py said when it was asked in the place of a build: what it would compile, read, start and fetch."""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from splatfix.core.words import counted, few


class DeclaredModule(Struct, frozen=True):
    """One extension that it declares."""

    name: str
    sources: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Sources that are not there when the compiler would be called."""
    cuda: bool = False
    archs: tuple[tuple[str, ...], ...] = ()
    """What nvcc would be told of architectures, ``-gencode=arch=compute_120,code=sm_120``; () where it did not come to that."""

    @property
    def words(self) -> str:
        """``simple_knn._C (3 sources; -gencode=arch=compute_120,code=sm_120)``."""
        parts = [counted(len(self.sources), "source")]
        parts += dict.fromkeys(" ".join(archs) or "no architecture for nvcc" for archs in self.archs)
        if self.missing:
            parts.append(f"not there: {few(self.missing)}")
        return f"{self.name} ({'; '.join(parts)})"


class SetupCall(Struct, frozen=True):
    """One call of ``setup()``, with what setup.cfg and pyproject.toml add."""

    name: str = ""
    version: str = ""
    packages: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands of its own: ``build_ext``."""
    modules: tuple[DeclaredModule, ...] = ()
    error: str = ""
    """Why its build_ext was not followed to the end."""


class SetupAnswer(Struct, frozen=True):
    """What one run of a setup.py came to."""

    setups: tuple[SetupCall, ...] = ()
    torch: str = ""
    """``installed``, or ``stub`` for a stand-in; "" where it does not ask torch."""
    asks_gpu: bool = False
    """It asks torch for the GPU."""
    reads: tuple[str, ...] = ()
    """Environment variables."""
    sets: Mapping[str, str] = field(default_factory=dict)
    children: tuple[str, ...] = ()
    """Programs that it would start, and that were not."""
    downloads: tuple[str, ...] = ()
    """Addresses or hosts that it would fetch from."""
    written: tuple[str, ...] = ()
    """Files and folders outside of the copy that it would write."""
    error: str = ""
    """What it stopped with, and its line."""

    @property
    def modules(self) -> tuple[DeclaredModule, ...]:
        """Those of all calls."""
        return tuple(module for call in self.setups for module in call.modules)


class Inquiry(Struct, frozen=True):
    """The setup.py of one build, asked as this machine is."""

    subject: str
    answer: SetupAnswer = field(default_factory=SetupAnswer)
    otherwise: SetupAnswer | None = None
    """With a GPU pretended where there is none here, without where there is one; None where it does not ask for one."""
    unknown: str = ""
    """Why it was not asked, or not to its end; "" where all is known."""
    seconds: float = 0.0

    @property
    def lines(self) -> Iterator[str]:
        """The answer in sentences."""
        for call in self.answer.setups:
            modules = ", ".join(module.words for module in call.modules) or "no extension"
            yield f"{' '.join(filter(None, (call.name or 'a computed name', call.version)))}: {modules}"
        if self.otherwise and self.otherwise.modules != self.answer.modules:
            others = few([module.words for module in self.otherwise.modules]) or "no extension"
            yield f"where torch sees a GPU, or none, other than here: {others}"
        if self.answer.torch == "stub":
            yield "torch is not installed there: a stand-in for 2.11 answered, and no flags are known"
        effects = {
            "reads": self.answer.reads,
            "sets": [f"{name}={value}" for name, value in self.answer.sets.items()],
            "would start, and was not let": self.answer.children,
            "would download from": self.answer.downloads,
            "would write": self.answer.written,
        }
        yield from (f"{verb} {few(texts)}" for verb, texts in effects.items() if texts)
        if self.unknown:
            yield f"not known: {self.unknown}"
