"""A certificate as an artifact-evaluation appendix, in Markdown and LaTeX.

The sections and the check-list are those of the form that ACM's and cTuning's artifact evaluations ask authors for ("Artifact
Appendix", ctuning.org/ae). What a certificate does not know stays a marked blank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from splatfix.certify.model import Certificate, SceneRun
from splatfix.certify.record import TrainingRecord
from splatfix.core.words import counted
from splatfix.report import latex as tex
from splatfix.report import markdown as md
from splatfix.report.console import shorten_home
from splatfix.report.tree import Block, Code, Items, Paragraph, Section, Strong, Table, Text, items_if
from splatfix.report.view import CertificateView, count_met

BLANK = "TODO: to be filled in by the authors"
_BUNDLED = ("quick", "standard")
"""The suites of scenes that come with splatfix."""
_HARDWARE = ("GPU", "other GPUs", "CPU", "memory")
"""What the names of hardware in a certificate's environment begin with (``GPU power limit``)."""


def markdown(certificate: Certificate) -> str:
    """The appendix as Markdown."""
    return md.render(_appendix(certificate))


def latex(certificate: Certificate) -> str:
    """The appendix as LaTeX."""
    return tex.render(_appendix(certificate))


def _appendix(certificate: Certificate) -> Section:
    """What the form asks for, in its order."""
    return Section("Artifact Appendix", _Form(certificate).sections())


def _paragraphs(*texts: str) -> Sequence[Block]:
    return [Paragraph(shorten_home(text)) for text in texts]


def _labelled(rows: Iterable[tuple[str, str]]) -> Sequence[Text]:
    """Entries of a list; a question needs no colon."""
    entries = []
    for label, text in rows:
        end = "" if label.endswith("?") else ":"
        entries.append((Strong(shorten_home(label) + end), f" {shorten_home(text)}"))
    return entries


class _Form:
    """The form's sections, filled in with what a certificate knows."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.view = CertificateView(certificate)
        self.command = shorten_home(certificate.repeat.shell(windows=False))
        self.splatfix = certificate.environment.get("splatfix", BLANK)
        self.trained = [run for run in certificate.scenes if run.record.has("heldout")]
        # an interrupted run may have trained no scene to its end, and yet known its settings and its code
        self.begun = [run.record for run in self.trained] or self._under_way()

    def _under_way(self) -> list[TrainingRecord]:
        # what the trainer told with its first iteration
        document = self.certificate.under_way.get("run")
        return [TrainingRecord.of(document)] if document else []

    def sections(self) -> Sequence[Section]:
        certificate = self.certificate
        return (
            Section("Abstract", _paragraphs(f"{self.view.headline.text}. {certificate.summary}", BLANK)),
            Section("Artifact check-list (meta-information)", (Items(_labelled(self._check_list())),)),
            Section("How to access", _paragraphs(BLANK)),
            Section("Hardware dependencies", _paragraphs(self._hardware(), BLANK)),
            Section("Software dependencies", (*items_if(_labelled(self._software())), *_paragraphs(BLANK))),
            Section("Data sets", self._data_sets()),
            Section(
                "Installation",
                _paragraphs(
                    f"splatfix {self.splatfix}, and the environment under Software dependencies.", BLANK
                ),
            ),
            Section(
                "Experiment workflow",
                (*_paragraphs("One command does all of it and writes the report:"), Code(self.command)),
            ),
            Section("Evaluation and expected results", self._results()),
            Section(
                "Experiment customization",
                _paragraphs(
                    "--data trains other scenes, --iterations, --resolution and --seed change the training, --renderer and "
                    "--device choose what it runs on; splatfix certify --help lists them all.",
                    BLANK,
                ),
            ),
            Section("Notes", self._notes()),
        )

    def _check_list(self) -> Iterable[tuple[str, str]]:
        """The form's questions, each with its answer."""
        certificate = self.certificate
        # a reader wants what the suite has, also where the run was cut short
        planned = [*(run.scene for run in certificate.scenes), *self.view.not_reached]
        software = "; ".join(f"{name} {version}" for name, version in self._software())
        yield "Algorithm", self._algorithm()
        yield "Program", self._program(planned)
        yield "Compilation", BLANK
        yield "Binary", self._binaries() or BLANK
        yield "Model", BLANK
        yield "Data set", self._data_set(planned)
        yield "Run-time environment", software or BLANK
        yield "Hardware", self._hardware()
        yield "Run-time state", BLANK
        yield "Execution", self._execution(planned)
        metrics = "PSNR, SSIM and LPIPS of held-out views; iterations per second; memory; Gaussians"
        yield "Metrics", metrics if planned else BLANK
        output = "certificate.json, .md and .html"
        if self.trained:
            output += "; for each scene a log, measurements and a model"
        yield "Output", output
        yield "Experiments", self.command
        yield "How much disk space required (approximately)?", BLANK
        yield "How much time is needed to prepare workflow (approximately)?", BLANK
        yield "How much time is needed to complete experiments (approximately)?", self._duration()
        yield "Publicly available?", BLANK
        yield "Code licenses (if publicly available)?", f"splatfix: Apache-2.0; all else {BLANK}"
        yield "Data licenses (if publicly available)?", self._data_licences()
        yield "Workflow automation framework used?", "splatfix certify"
        yield "Archived (provide DOI)?", BLANK

    def _algorithm(self) -> str:
        if not self.begun:
            return BLANK
        strategies = self._each(lambda record: record.config.strategy)
        text = f"3D Gaussian Splatting, densification strategy {strategies}"
        if self.trained:
            text += f", spherical harmonics of degree {self._each(lambda record: record.sh_degree)}"
        return text

    def _data_set(self, planned: Sequence[str]) -> str:
        if not planned:
            return BLANK
        return f"suite {self.certificate.suite}: {', '.join(planned)}"

    def _program(self, planned: Sequence[str]) -> str:
        text = f"splatfix {self.splatfix}"
        if planned:
            text += f", its smoke trainer with the renderer {self.certificate.renderer}"
        return text

    def _binaries(self) -> str:
        """Every file that implements a part, once, with its SHA-256."""
        files: dict[str, None] = {}
        for record in self.begun:
            for item in record.implementations.values():
                if item.file and item.sha256:
                    files[f"{item.file} (SHA-256 {item.sha256})"] = None
        return "; ".join(files)

    def _execution(self, planned: Sequence[str]) -> str:
        if not planned:
            return BLANK
        text = f"{counted(len(planned), 'scene')} one after the other on {self.certificate.device}"
        if self.begun:
            iterations = self._each(lambda record: record.iterations or record.config.iterations)
            text += f", iterations {iterations}, seed {self._each(lambda record: record.config.seed)}"
        if not self.view.ended:
            text += f"; {len(self.trained)} trained to the end"
        return text

    def _duration(self) -> str:
        took = f"{self.certificate.seconds:.0f} s on the hardware above"
        if self.view.ended:
            return took
        return f"not known: the run did not come to its end, and was {took}"

    def _data_licences(self) -> str:
        # a stack's own trainer is given scenes of the user's, whatever the suite is called
        if self.certificate.suite in _BUNDLED and self.certificate.stack is None:
            return f"splatfix's sample scenes: Apache-2.0, as splatfix; all else {BLANK}"
        return BLANK

    def _hardware(self) -> str:
        parts = []
        for name, text in self.certificate.environment.items():
            if name.startswith(_HARDWARE):
                parts.append(f"{name}: {text}")
        return f"Run on {self.certificate.device}; {'; '.join(parts) or BLANK}"

    def _software(self) -> list[tuple[str, str]]:
        environment = self.certificate.environment.items()
        return [(name, text) for name, text in environment if not name.startswith(_HARDWARE)]

    def _data_sets(self) -> Sequence[Block]:
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
            rows.append(tuple(map(shorten_home, row)))
        if not rows:
            return _paragraphs(BLANK)
        headers = ("scene", "layout", "resolution", "training and held-out views", "SHA-256")
        return (Table(headers, rows),)

    def _results(self) -> Sequence[Block]:
        levels = []
        for level in self.view.levels:
            levels.append((f"Level {level.name}", f"{level.badge.text}: {level.evidence}"))
        blocks = [*items_if(_labelled(levels))]
        if not self.trained:
            return (*blocks, *_paragraphs(BLANK))
        headers = ("scene", "criteria met", "PSNR", "SSIM", "LPIPS", "Gaussians", "it/s", "seconds")
        again = "Another run is held against these figures with splatfix certify --baseline certificate.json."
        return (*blocks, Table(headers, list(map(_figures, self.trained))), *_paragraphs(again))

    def _notes(self) -> Sequence[Block]:
        certificate = self.certificate
        rows = [("Not certified", reason) for reason in certificate.reasons]
        rows += [(f"Reservation, {item.scene}", item.reason) for item in certificate.notes]
        rows += [(f"Unreadable, {item.scene}", item.reason) for item in certificate.unreadable]
        rows += [(f"Skipped, {item.scene}", item.reason) for item in certificate.skipped]
        if not self.view.ended:
            rows.append(("Not finished", "not every scene of the suite was trained"))
        issued = _paragraphs(f"Certificate issued {certificate.issued}.", BLANK)
        return (*items_if(_labelled(rows)), *issued)

    def _each(self, value: Callable[[TrainingRecord], object]) -> str:
        """The values of all scenes, each once."""
        values: dict[str, None] = {}
        for record in self.begun:
            known = value(record)
            values[BLANK if known is None else str(known)] = None
        return ", ".join(values)


def _figures(run: SceneRun) -> Sequence[str]:
    record = run.record
    return (
        shorten_home(run.scene),
        count_met(run.criteria),
        _figure(record.heldout.psnr, 2),
        _figure(record.heldout.ssim, 4),
        _figure(record.heldout.lpips, 4),
        _figure(record.gaussians.final, 0),
        _figure(record.iterations_per_second, 2),
        _figure(run.seconds, 0),
    )


def _figure(value: float | None, digits: int) -> str:
    return "not measured" if value is None else f"{value:.{digits}f}"
