"""What is certified: splatfix's own trainer on a suite of scenes, resolved from a request for one machine."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from splatfix.certify.baseline import require_alike
from splatfix.certify.levels import FULL, FULL_ITERATIONS, TRAINS_FROM
from splatfix.certify.model import Certificate
from splatfix.certify.prerequisites import device_for, renderer_for
from splatfix.certify.request import CertifyRequest
from splatfix.certify.scenes import NO_SCENES, Suite, data_suite, sample_suite
from splatfix.certify.smoke import stage
from splatfix.core.errors import SplatfixError
from splatfix.core.step import Command, target_options, value_options
from splatfix.knowledge import Arch
from splatfix.knowledge.published import Method, methods
from splatfix.model import Facts


class SmokeSubject(Struct, frozen=True):
    """Splatfix's own trainer in one environment."""

    rehearsed: ClassVar[bool] = False
    extensions: ClassVar[tuple[str, ...]] = ()
    """It is judged with all that are installed."""

    request: CertifyRequest
    python: str
    device: str
    suite: Suite
    baseline: Certificate | None = None
    """An earlier certificate to compare with."""
    published: str = ""
    """The name of published figures to compare with, instead of that."""
    stage_files: Callable[[Path], Path] = stage
    """Puts trainer and kernels into a folder and returns the PYTHONPATH entry."""

    @property
    def title(self) -> str:
        """What is certified, in words."""
        return f"Run level {self.level} of {FULL}" if self.level else "Training 3D Gaussians"

    @property
    def level(self) -> int | None:
        """The run level that was asked for."""
        return self.request.level

    @property
    def renderer(self) -> str:
        """What it draws with."""
        return self.request.renderer

    @property
    def out(self) -> Path:
        """The report's folder."""
        return self.request.out.absolute()

    @property
    def scenes(self) -> tuple[str, ...]:
        """Those to be trained."""
        return self.suite.scenes

    @property
    def targets(self) -> tuple[Arch, ...]:
        """Architectures that extensions are judged for without being run: a GPU that is used needs no others."""
        return self.request.targets if self.device == "cpu" else ()

    @property
    def trainer_arguments(self) -> list[str]:
        """How it trains every scene."""
        request = self.request
        return ["--renderer", request.renderer, "--device", self.device, "--seed", str(request.seed)]

    @property
    def command(self) -> Command:
        """The command line that asks for the same."""
        request, suite = self.request, self.suite
        arguments = ["splatfix", "certify", "--python", self.python]
        arguments += value_options({"--data": suite.data, "--level": request.level})
        if request.level is None:
            if suite.data is None:
                arguments += ["--suite", suite.name]
            options = {"--scene": request.scene, "--iterations": suite.iterations}
            arguments += value_options({**options, "--resolution": suite.resolution})
        if suite.scenes or request.level is None:
            arguments += self.trainer_arguments
        else:
            arguments += ["--device", self.device]
        if self.published:
            arguments += ["--baseline", self.published]
        return Command((*arguments, *target_options(self.targets)))


def smoke_subject(
    request: CertifyRequest, python: str, facts: Facts, baseline: Certificate | None = None
) -> SmokeSubject:
    """Return the suite, device and renderer that a request means on this machine; ``baseline`` is the certificate that it names.

    Raises:
        SplatfixError: wrong options (exit code 2), an environment that cannot run the trainer (3).
    """
    method = published_method(request)
    device = device_for(request.device, facts)
    request = replace(request, renderer=renderer_for(request.renderer, device, facts))
    suite = _suite(request, method, device)
    if baseline is not None:
        require_alike(Path(str(request.baseline)), baseline, request.renderer, device)
    return SmokeSubject(request, python, device, suite, baseline, method.name if method else "")


def _suite(request: CertifyRequest, method: Method | None, device: str) -> Suite:
    """Return the scenes that were asked for, those of a run level, or none."""
    level = request.level
    if level is not None and level < TRAINS_FROM:
        return NO_SCENES
    full = level == FULL
    if request.data is None and level is not None:
        return sample_suite("standard" if full else "quick")
    if request.data is None:
        return sample_suite(request.suite, request.iterations, request.resolution, only=request.scene)
    if full and device == "cpu":
        raise SplatfixError.of("certify.level-needs-gpu", full=FULL, full_iterations=FULL_ITERATIONS)
    length = request.iterations
    if full:
        length = length or FULL_ITERATIONS
    elif method and device != "cpu":
        length = length or method.iterations
    suite = data_suite(request.data, device, length, request.resolution, every_public=full)
    if method is None:
        return suite
    return replace(suite, strategy=method.strategy)


def published_method(request: CertifyRequest) -> Method | None:
    """Return the published figures that ``--baseline`` names; None where it names a file.

    Raises:
        SplatfixError: ``unknown-baseline`` (exit code 2) for neither, ``baseline-needs-data`` for sample scenes.
    """
    if request.baseline is None:
        return None
    method = methods().get(request.baseline)
    if method is None and not Path(request.baseline).exists():
        raise SplatfixError.of("certify.unknown-baseline", name=request.baseline, known=tuple(methods()))
    if method is not None and request.data is None:
        raise SplatfixError.of("certify.baseline-needs-data", baseline=request.baseline)
    return method
