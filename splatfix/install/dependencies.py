"""Wheels of what the code imports: pip works out what is needed beside what is installed, and fetches that alone."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from splatfix.context.requirements import name_of
from splatfix.core.codec import parse_json
from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed
from splatfix.install.downloads import Pip
from splatfix.knowledge.torch_releases import COMPANIONS
from splatfix.model import Distribution
from splatfix.model.steps import InstallDependencies


class Fetcher(Struct):
    """Asks pip for wheels that fit beside what is installed. The environment is not changed.

    What is installed and not asked for keeps its version, torch above all: pip is held to it by constraints, and refuses
    what does not fit. What the code's own files pin comes in that version where a wheel of it fits. Source distributions of
    the rest are built, as pip does it.
    """

    step: InstallDependencies
    installed: Iterable[Distribution]
    pip: Pip
    folder: Path
    """A new one, for the wheels."""
    tell: Callable[[str], None]
    pins: list[str] = field(default_factory=list)
    """What the code's own files pin, as far as it can be had."""
    told: list[str] = field(default_factory=list)
    """What cannot be had, each as a sentence."""

    def fetch(self) -> tuple[Path, ...]:
        """Return the wheels of all requirements, () where everything is there; of the optional ones those that can be had."""
        self.pins = list(self.step.pins)
        try:
            return self._wheels(self.step.requirements, "all")
        except SplatfixError as error:
            if not self.step.optional or error.details["network"]:
                raise
        kept = [text for text in self.step.requirements if text not in self.step.optional]
        wheels = self._wheels(kept, "needed") if kept else ()
        # halves of the optional ones, until each that cannot be had stands alone: pip names only one of several
        pending, number = [self.step.optional], 0
        while pending:
            group, number = pending.pop(0), number + 1
            try:
                wheels = self._wheels([*kept, *group], str(number))
                kept += group
            except SplatfixError as error:
                half = len(group) // 2
                if half:
                    pending[:0] = [group[:half], group[half:]]
                else:
                    text = f"{group[0]}: {error.what}"
                    self.told.append(f"not installed, and its scripts may lack it: {text}")
        return wheels

    def _wheels(self, requirements: Sequence[str], label: str) -> tuple[Path, ...]:
        folder = self.folder / label
        folder.mkdir(parents=True)
        report, constraints = folder / "report.json", folder / "constraints.txt"
        requested, kept, on_cpu = {name_of(text) for text in requirements}, list[str](), False
        for item in self.installed:
            name = canonicalize_name(item.name)
            on_cpu |= name == "torch" and item.version.endswith("+cpu")
            with suppress(InvalidVersion):  # pip would refuse the whole list for the line
                if name not in requested:
                    # what comes after a plus is on no index of PyPI's kind, and what is installed has it already
                    kept.append(f"{item.name}=={Version(item.version).public}")
        index: list[str] = []
        if self.step.index:
            # where it cannot be reached pip would wait for it 8 s for each of some 80 packages; so 1 s
            index = ["--extra-index-url", self.step.index, "--retries", "2"]
        self.tell("working out what they need")
        resolve = ["install", "--dry-run", "--report", str(report), "--constraint", str(constraints), *index]
        while True:
            constraints.write_text("".join(f"{pin}\n" for pin in (*kept, *self.pins)))
            # pip would take minutes to learn that the numpy of a 2021 cannot be compiled for this Python
            wheels = [f"--only-binary={name_of(pin)}" for pin in self.pins]
            completed = self.pip.run(*resolve, *wheels, *requirements)
            if completed.ok and report.is_file():
                break
            if not self._loosen(completed):
                raise self._failed(requirements, completed)
        pins: list[str] = []
        for row in parse_json(report.read_text("utf-8")).get("install", ()):
            pin = f"{row['metadata']['name']}=={row['metadata']['version']}"
            if row.get("is_direct"):
                pin = f"{row['metadata']['name']} @ {row['download_info']['url']}"
            pins.append(pin)
            # PyPI's torchvision beside torch's CPU build of PyTorch's own index: "operator torchvision::nms does not exist"
            if on_cpu and name_of(pin) in COMPANIONS and not pin.endswith("+cpu"):
                reason = f"only {pin} is offered, which is for a CUDA torch"
                raise self._not_found(requirements, reason)
        if not pins:
            return ()
        self.tell(f"fetching {len(pins)} of them")
        if not any("+" in pin for pin in pins):
            index = []  # which alone has builds with a plus
        completed = self.pip.run("wheel", "--no-deps", "--wheel-dir", str(folder), *index, *pins)
        if not completed.ok:
            raise self._failed(requirements, completed)
        return tuple(sorted(folder.glob("*.whl")))

    def _loosen(self, completed: Completed) -> bool:
        """Loosen the pins that pip found in the way: to their major version, then altogether. False where there was none."""
        output = completed.stdout + completed.stderr
        blamed = set(map(name_of, re.findall(r"\(constraint\) (\S+)", output)))
        in_the_way = [pin for pin in self.pins if name_of(pin) in blamed]
        for pin in in_the_way:
            self.pins.remove(pin)
            name, _, version = pin.partition("==")
            instead = "any version"
            with suppress(InvalidVersion):  # no pin of one version, or a pattern
                instead = f"{name}>={version},<{Version(version).release[0] + 1}"
                self.pins.append(instead)
            text = f"{pin}, which its files ask for, has no wheel that fits here; {instead} was asked for"
            self.told.append(text)
        return bool(in_the_way)

    def _failed(self, requirements: Sequence[str], completed: Completed) -> SplatfixError:
        output = completed.stdout + completed.stderr
        errors = re.findall(r"(?mi)^\s*error:? (.*)", output)
        return self._not_found(requirements, [*errors, completed.why()][0], network="Retrying (" in output)

    def _not_found(self, requirements: Sequence[str], reason: str, *, network: bool = False) -> SplatfixError:
        return SplatfixError.of(
            "install.dependencies-not-found",
            details={"network": network},
            requirements=tuple(requirements),
            reason=reason,
            log=self.pip.log,
        )
