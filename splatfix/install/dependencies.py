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
from splatfix.core.step import run, say
from splatfix.install.downloads import Pip
from splatfix.install.environment import Environment
from splatfix.knowledge.torch_releases import COMPANIONS
from splatfix.model import Distribution
from splatfix.model.steps import InstallDependencies


class Fetcher(Struct, frozen=True):
    """Asks pip for wheels that fit beside what is installed. The environment is not changed.

    What is installed and not asked for keeps its version, torch above all: pip is held to it by constraints, and refuses
    what does not fit. What the code's own files pin comes in that version where a wheel of it fits. Source distributions of
    the rest are built, as pip does it.
    """

    step: InstallDependencies
    installed: Iterable[Distribution]
    environment: Environment
    folder: Path
    """A new one, for the wheels."""
    log: Path
    tell: Callable[[str], None]
    pins: list[str] = field(default_factory=list)
    """What the code's own files pin, as far as it can be had."""
    told: list[str] = field(default_factory=list)
    """Pins that cannot be had, each as a sentence."""

    def fetch(self) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """The wheels of all requirements, () where everything is there; of the optional ones those that can be had.

        Optional ones that pip could not bring come second, each with what it said.

        Raises:
            SplatfixError: ``dependencies-not-found`` with what pip said.
        """
        try:
            return self._wheels(self.step.requirements, "all"), ()
        except SplatfixError as error:
            if not self.step.optional or error.details.get("network"):
                raise
        kept = [text for text in self.step.requirements if text not in self.step.optional]
        wheels: tuple[Path, ...] = ()
        if kept:
            wheels = self._wheels(kept, "needed")
        # halves of the optional ones, until each that cannot be had stands alone: pip names only one of several
        left_out: list[str] = []
        pending = [list(self.step.optional)]
        while pending:
            group = pending.pop(0)
            try:
                wheels = self._wheels([*kept, *group], f"{len(kept)}-{len(group)}-{len(left_out)}")
                kept += group
            except SplatfixError as error:
                half = len(group) // 2
                if half:
                    pending[:0] = [group[:half], group[half:]]
                else:
                    left_out.append(f"{group[0]}: {error.what}")
        return wheels, tuple(left_out)

    def _wheels(self, requirements: Sequence[str], name: str) -> tuple[Path, ...]:
        pip = Pip.of(self.environment, self.log)
        folder = self.folder / name
        folder.mkdir(parents=True)
        report, constraints = folder / "report.json", folder / "constraints.txt"
        on_cpu = any(
            canonicalize_name(item.name) == "torch" and item.version.endswith("+cpu")
            for item in self.installed
        )
        requested, kept = {name_of(text) for text in requirements}, []
        for item in self.installed:
            with suppress(InvalidVersion):  # pip would refuse the whole list for the line
                if canonicalize_name(item.name) not in requested:
                    # what comes after a plus is on no index of PyPI's kind, and what is installed has it already
                    kept.append(f"{item.name}=={Version(item.version).public}")
        index: list[str] = []
        if self.step.index:
            index = ["--extra-index-url", self.step.index]
        self.tell("working out what they need")
        resolve = ["install", "--dry-run", "--report", str(report), "--constraint", str(constraints), *index]
        if index:
            # where the second index cannot be reached pip would wait for it 8 s for each of some 80 packages; so 1 s
            resolve += ["--retries", "2"]
        while True:
            constraints.write_text("".join(f"{pin}\n" for pin in (*kept, *self.pins)))
            # pip would take minutes to learn that the numpy of a 2021 cannot be compiled for this Python
            wheels = [f"--only-binary={name_of(pin)}" for pin in self.pins]
            completed = pip.run(*resolve, *wheels, *requirements)
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
                raise self._not_found(requirements, f"only {pin} is offered, which is for a CUDA torch")
        if not pins:
            return ()
        self.tell(f"fetching {len(pins)} of them")
        fetch = ["wheel", "--no-deps", "--wheel-dir", str(folder)]
        if any("+" in pin for pin in pins):
            fetch += index  # builds that only torch's index has
        completed = pip.run(*fetch, *pins)
        if not completed.ok:
            raise self._failed(requirements, completed)
        return tuple(sorted(folder.glob("*.whl")))

    def _loosen(self, completed: Completed) -> bool:
        """Loosen the pins that pip found in the way: to their major version, then altogether. False where there was none."""
        blamed = {
            name_of(pin) for pin in re.findall(r"\(constraint\) (\S+)", completed.stdout + completed.stderr)
        }
        in_the_way = [pin for pin in self.pins if name_of(pin) in blamed]
        for pin in in_the_way:
            self.pins.remove(pin)
            name, _, version = pin.partition("==")
            instead = "any version"
            with suppress(InvalidVersion):  # no pin of one version, or a pattern
                instead = f"{name}>={version},<{Version(version).release[0] + 1}"
                self.pins.append(instead)
            self.told.append(
                f"{pin}, which its files ask for, has no wheel that fits here; {instead} was asked for"
            )
        return bool(in_the_way)

    def _failed(self, requirements: Sequence[str], completed: Completed) -> SplatfixError:
        output = completed.stdout + completed.stderr
        reason = completed.why()
        for line in output.splitlines():
            if line.lstrip().upper().startswith("ERROR"):
                reason = re.sub(r"(?i)^error: ", "", line.strip())
                break
        return self._not_found(requirements, reason, output)

    def _not_found(self, requirements: Sequence[str], reason: str, text: str = "") -> SplatfixError:
        if "no such option" in text:
            how = run(
                *self.environment.command("install", "--upgrade", "pip"),
                text="This pip is older than 22.2; upgrade it",
            )
        else:
            how = say("Leave --with-dependencies away, and install what fits with pip.")
        return SplatfixError.of(
            "install.dependencies-not-found",
            todo=(how, say(f"Full log: {self.log}")),
            details={"network": "Retrying (" in text},
            requirements=tuple(requirements),
            reason=reason,
        )
