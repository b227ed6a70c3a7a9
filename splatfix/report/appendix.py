"""A certificate as an artifact-evaluation appendix, in Markdown and LaTeX; ``templates/appendix.form`` is the form.

What a certificate does not know stays a marked blank.
"""

from collections.abc import Callable, Sequence

from splatfix.certify.model import Certificate
from splatfix.certify.record import TrainingRecord
from splatfix.core.words import counted
from splatfix.report.results import number
from splatfix.report.templates import fill_in
from splatfix.report.view import CertificateView, count_met

BLANK = "TODO: to be filled in by the authors"
_BUNDLED = ("quick", "standard")
"""The suites of scenes that come with splatfix."""
_HARDWARE = ("GPU", "other GPUs", "CPU", "memory")
"""What the names of hardware in a certificate's environment begin with (``GPU power limit``)."""


def markdown(certificate: Certificate) -> str:
    """The appendix as Markdown."""
    return fill_in("appendix.md", form=_Form(certificate), blank=BLANK)


def latex(certificate: Certificate) -> str:
    r"""The appendix as LaTeX, to be read with ``\input`` into an article; it needs no package."""
    return fill_in("appendix.tex", form=_Form(certificate), blank=BLANK)


class _Form:
    """What a certificate knows of what the form asks for."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.view = CertificateView(certificate)
        self.trained = [run for run in certificate.scenes if run.record.has("heldout")]
        # an interrupted run may have trained no scene to its end, and yet known its settings and its code
        self.begun = [run.record for run in self.trained]
        under_way = certificate.under_way.get("run")
        if not self.begun and under_way:
            self.begun = [TrainingRecord.of(under_way)]
        # a reader wants what the suite has, also where the run was cut short
        self.planned = [*(run.scene for run in certificate.scenes), *self.view.not_reached]

        self.abstract = f"{self.view.headline.text}. {certificate.summary}"
        self.splatfix = certificate.environment.get("splatfix", BLANK)
        self.command = certificate.repeat.shell(windows=False)
        self.issued = certificate.issued
        parts = [(name, text) for name, text in certificate.environment.items()]
        self.software = [part for part in parts if not part[0].startswith(_HARDWARE)]
        self.environment = "; ".join(f"{name} {version}" for name, version in self.software) or BLANK
        hardware = [f"{name}: {text}" for name, text in parts if name.startswith(_HARDWARE)]
        self.hardware = f"Run on {certificate.device}; {'; '.join(hardware) or BLANK}"
        self.metrics = BLANK
        if self.planned:
            self.metrics = "PSNR, SSIM and LPIPS of held-out views; iterations per second; memory; Gaussians"
        self.output = "certificate.json, .md and .html"
        if self.trained:
            self.output += "; for each scene a log, measurements and a model"

    @property
    def algorithm(self) -> str:
        """The method, its strategy and degree."""
        if not self.begun:
            return BLANK
        strategies = self._each(lambda record: record.config.strategy)
        text = f"3D Gaussian Splatting, densification strategy {strategies}"
        if self.trained:
            text += f", spherical harmonics of degree {self._each(lambda record: record.sh_degree)}"
        return text

    @property
    def program(self) -> str:
        """splatfix, and what of it was run."""
        text = f"splatfix {self.splatfix}"
        if self.planned:
            text += f", its smoke trainer with the renderer {self.certificate.renderer}"
        return text

    @property
    def binaries(self) -> str:
        """Every file that implements a part, once, with its SHA-256."""
        files: dict[str, None] = {}
        for record in self.begun:
            for item in record.implementations.values():
                if item.file and item.sha256:
                    files[f"{item.file} (SHA-256 {item.sha256})"] = None
        return "; ".join(files) or BLANK

    @property
    def data_set(self) -> str:
        """The suite and its scenes."""
        if not self.planned:
            return BLANK
        return f"suite {self.certificate.suite}: {', '.join(self.planned)}"

    @property
    def execution(self) -> str:
        """How the scenes were trained."""
        if not self.planned:
            return BLANK
        text = f"{counted(len(self.planned), 'scene')} one after the other on {self.certificate.device}"
        if self.begun:
            iterations = self._each(lambda record: record.iterations or record.config.iterations)
            text += f", iterations {iterations}, seed {self._each(lambda record: record.config.seed)}"
        if not self.view.ended:
            text += f"; {len(self.trained)} trained to the end"
        return text

    @property
    def duration(self) -> str:
        """How long it took."""
        took = f"{self.certificate.seconds:.0f} s on the hardware above"
        if self.view.ended:
            return took
        return f"not known: the run did not come to its end, and was {took}"

    @property
    def data_licences(self) -> str:
        """Of the scenes that come with splatfix."""
        # a stack's own trainer is given scenes of the user's, whatever the suite is called
        if self.certificate.suite in _BUNDLED and self.certificate.stack is None:
            return f"splatfix's sample scenes: Apache-2.0, as splatfix; all else {BLANK}"
        return BLANK

    @property
    def scenes(self) -> Sequence[Sequence[str]]:
        """A row for each scene that was trained."""
        rows = []
        for run in self.trained:
            record = run.record
            row = (
                run.scene,
                record.layout or BLANK,
                " x ".join(map(str, record.resolution)) or BLANK,
                f"{len(record.split.train)} and {len(record.split.test)}",
                record.scene_sha256 or BLANK,
            )
            rows.append(row)
        return rows

    @property
    def levels(self) -> Sequence[tuple[str, str]]:
        """What was verified."""
        return [(f"Level {item.name}", f"{item.badge.text}: {item.evidence}") for item in self.view.levels]

    @property
    def figures(self) -> Sequence[Sequence[str]]:
        """A row of results for each scene that was trained."""
        rows = []
        for run in self.trained:
            record = run.record
            figures = (
                (record.heldout.psnr, "{:.2f}"),
                (record.heldout.ssim, "{:.4f}"),
                (record.heldout.lpips, "{:.4f}"),
                (record.gaussians.final, "{:.0f}"),
                (record.iterations_per_second, "{:.2f}"),
                (run.seconds, "{:.0f}"),
            )
            cells = [number(value, form, absent="not measured") for value, form in figures]
            rows.append((run.scene, count_met(run.criteria), *cells))
        return rows

    @property
    def notes(self) -> Sequence[tuple[str, str]]:
        """What did not go as planned."""
        certificate = self.certificate
        rows = [("Not certified", reason) for reason in certificate.reasons]
        rows += [(f"Reservation, {item.scene}", item.reason) for item in certificate.notes]
        rows += [(f"Unreadable, {item.scene}", item.reason) for item in certificate.unreadable]
        rows += [(f"Skipped, {item.scene}", item.reason) for item in certificate.skipped]
        if not self.view.ended:
            rows.append(("Not finished", "not every scene of the suite was trained"))
        return rows

    def _each(self, value: Callable[[TrainingRecord], object]) -> str:
        """The values of all scenes, each once."""
        values = dict.fromkeys(number(value(record), "{}", absent=BLANK) for record in self.begun)
        return ", ".join(values)
