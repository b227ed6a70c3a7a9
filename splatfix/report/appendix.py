"""A certificate as an artifact-evaluation appendix, in Markdown and LaTeX.

The sections and the check-list are those of the form that ACM's and cTuning's artifact evaluations ask authors for ("Artifact
Appendix", ctuning.org/ae). What a certificate does not know stays a marked blank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splatfix.certify.model import NOT_REACHED, Certificate, Outcome, SceneRun
from splatfix.core.visible import visible
from splatfix.core.words import counted
from splatfix.report.certificate import title_of
from splatfix.report.console import shorten_home
from splatfix.report.field_report import cell

BLANK = "TODO: to be filled in by the authors"


@dataclass(frozen=True)
class _List:
    """Items with their label."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Table:
    """A header and rows of as many cells."""

    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class _Code:
    """A line for a shell."""

    line: str


_Block = str | _List | _Table | _Code
_Sections = tuple[tuple[str, tuple[_Block, ...]], ...]


def markdown(certificate: Certificate) -> str:
    """The appendix as Markdown."""
    lines = ["# Artifact Appendix", ""]
    for title, blocks in _sections(certificate):
        lines += [f"## {title}", ""]
        for block in blocks:
            if isinstance(block, _List):
                lines += [f"- **{_md(_label(label))}** {_md(text)}" for label, text in block.items]
            elif isinstance(block, _Table):
                header, *rows = (f"| {' | '.join(map(_md, row))} |" for row in block.rows)
                lines += [header, "|---" * len(block.rows[0]) + "|", *rows]
            else:
                lines.append(f"    {visible(block.line)}" if isinstance(block, _Code) else _md(block))
            lines.append("")
    return "\n".join(lines)


def latex(certificate: Certificate) -> str:
    """The appendix as LaTeX, to be read with ``\\input`` into an article; it needs no package."""
    lines = [r"\appendix", r"\section{Artifact Appendix}", ""]
    for title, blocks in _sections(certificate):
        lines += [rf"\subsection{{{_tex(title)}}}", ""]
        for block in blocks:
            if isinstance(block, _List):
                items = [
                    rf"  \item \textbf{{{_tex(_label(label))}}} {_tex(text)}" for label, text in block.items
                ]
                lines += [r"\begin{itemize}", *items, r"\end{itemize}"]
            elif isinstance(block, _Table):
                rows = [" & ".join(map(_tex, row)) + r" \\" for row in block.rows]
                lines += [rf"\begin{{tabular}}{{{'l' * len(block.rows[0])}}}", rows[0], r"\hline", *rows[1:]]
                lines.append(r"\end{tabular}")
            elif isinstance(block, _Code):
                lines.append(rf"\begin{{flushleft}}\ttfamily {_tex(block.line)}\end{{flushleft}}")
            else:
                lines.append(_tex(block))
            lines.append("")
    return "\n".join(lines)


def _label(text: str) -> str:
    return text if text.endswith("?") else f"{text}:"


def _md(text: str) -> str:
    return cell(shorten_home(text))


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # in braces none of them joins its neighbour, or is an argument of the command before
    **{sign: f"{{{sign}}}" for sign in "`'\"[]"},
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}


def _tex(text: str) -> str:
    """Text that LaTeX shows as it is; nothing in it is a command, whatever it holds."""
    return re.sub("-(?=-)", "-{}", "".join(_TEX.get(sign, sign) for sign in visible(shorten_home(text))))


def _sections(certificate: Certificate) -> _Sections:
    """What the form asks for, in its order."""
    command = shorten_home(certificate.repeat.shell(windows=False))
    splatfix = certificate.environment.get("splatfix", BLANK)
    trained = [run for run in certificate.scenes if "heldout" in run.result]
    return (
        ("Abstract", (f"{title_of(certificate.verdict, certificate.level)}. {certificate.summary}", BLANK)),
        ("Artifact check-list (meta-information)", (_check_list(certificate, trained, command, splatfix),)),
        ("How to access", (BLANK,)),
        ("Hardware dependencies", (_hardware(certificate), BLANK)),
        ("Software dependencies", (*_listed(_software(certificate)), BLANK)),
        ("Data sets", (_data_sets(trained) or BLANK,)),
        ("Installation", (f"splatfix {splatfix}, and the environment under Software dependencies.", BLANK)),
        ("Experiment workflow", ("One command does all of it and writes the report:", _Code(command))),
        ("Evaluation and expected results", _expected(certificate, trained)),
        (
            "Experiment customization",
            (
                "--data trains other scenes, --iterations, --resolution and --seed change the training, --renderer and "
                "--device choose what it runs on; splatfix certify --help lists them all.",
                BLANK,
            ),
        ),
        ("Notes", _notes(certificate)),
    )


def _check_list(certificate: Certificate, trained: Sequence[SceneRun], command: str, splatfix: str) -> _List:
    begun = trained or _under_way(certificate)
    seeds = _each(begun, lambda run: _at(run, "config", "seed"))
    strategies = _each(begun, lambda run: _at(run, "config", "strategy"))
    degrees = _each(trained, lambda run: _at(run, "sh_degree"))
    algorithm = f"3D Gaussian Splatting, densification strategy {strategies}"
    algorithm += f", spherical harmonics of degree {degrees}" if trained else ""
    planned = [run.scene for run in certificate.scenes] + _not_reached(certificate)
    names = ", ".join(planned)
    ended = certificate.interrupted or certificate.unfinished
    took = f"{certificate.seconds:.0f} s on the hardware above"
    bundled = certificate.suite in _BUNDLED and certificate.stack is None
    data_licence = (
        f"splatfix's sample scenes: Apache-2.0, as splatfix; all else {BLANK}" if bundled else BLANK
    )
    software = _software(certificate)
    trainer = f", its smoke trainer with the renderer {certificate.renderer}"
    metrics = "PSNR, SSIM and LPIPS of held-out views; iterations per second; memory; Gaussians"
    output = "certificate.json, .md and .html"
    output += "; for each scene a log, measurements and a model" if trained else ""
    lengths = _each(begun, lambda run: _at(run, "iterations") or _at(run, "config", "iterations"))
    execution = f"{counted(len(planned), 'scene')} one after the other on {certificate.device}"
    execution += f", iterations {lengths}, seed {seeds}" if begun else ""
    execution += f"; {len(trained)} trained to the end" if ended else ""
    return _List(
        (
            ("Algorithm", algorithm if begun else BLANK),
            ("Program", f"splatfix {splatfix}{trainer if planned else ''}"),
            ("Compilation", BLANK),
            ("Binary", _binaries(begun) or BLANK),
            ("Model", BLANK),
            ("Data set", f"suite {certificate.suite}: {names}" if names else BLANK),
            ("Run-time environment", "; ".join(f"{name} {text}" for name, text in software) or BLANK),
            ("Hardware", _hardware(certificate)),
            ("Run-time state", BLANK),
            ("Execution", execution if planned else BLANK),
            ("Metrics", metrics if planned else BLANK),
            ("Output", output),
            ("Experiments", command),
            ("How much disk space required (approximately)?", BLANK),
            ("How much time is needed to prepare workflow (approximately)?", BLANK),
            (
                "How much time is needed to complete experiments (approximately)?",
                f"not known: the run did not come to its end, and was {took}" if ended else took,
            ),
            ("Publicly available?", BLANK),
            ("Code licenses (if publicly available)?", f"splatfix: Apache-2.0; all else {BLANK}"),
            ("Data licenses (if publicly available)?", data_licence),
            ("Workflow automation framework used?", "splatfix certify"),
            ("Archived (provide DOI)?", BLANK),
        )
    )


_BUNDLED = ("quick", "standard")
"""The suites of scenes that come with splatfix."""


def _not_reached(certificate: Certificate) -> list[str]:
    return [item.scene for item in certificate.skipped if item.reason == NOT_REACHED]


def _under_way(certificate: Certificate) -> list[SceneRun]:
    """The scene that was under way, with what it had told by then; nothing where there is none."""
    told = certificate.under_way.get("run")
    where = str(certificate.under_way.get("where", ""))
    return [SceneRun(where, (), 0.0, told)] if isinstance(told, Mapping) else []


_HARDWARE = ("GPU", "other GPUs", "CPU", "memory")


def _is_hardware(name: str) -> bool:
    return any(name.startswith(word) for word in _HARDWARE)


def _hardware(certificate: Certificate) -> str:
    found = [f"{name}: {text}" for name, text in certificate.environment.items() if _is_hardware(name)]
    return f"Run on {certificate.device}; {'; '.join(found) or BLANK}"


def _software(certificate: Certificate) -> list[tuple[str, str]]:
    return [(name, text) for name, text in certificate.environment.items() if not _is_hardware(name)]


def _binaries(trained: Sequence[SceneRun]) -> str:
    """Every file that implements a part, once, with its SHA-256."""
    parts = [_at(run, "implementations") for run in trained]
    engines = [engine for part in parts if isinstance(part, Mapping) for engine in part.values()]
    named = [(engine.get("file"), engine.get("sha256")) for engine in engines if isinstance(engine, Mapping)]
    return "; ".join(dict.fromkeys(f"{file} (SHA-256 {digest})" for file, digest in named if file and digest))


def _data_sets(trained: Sequence[SceneRun]) -> _Table | None:
    rows = [
        (
            run.scene,
            str(_at(run, "layout") or BLANK),
            " x ".join(map(str, _at(run, "resolution") or ())) or BLANK,
            f"{len(_at(run, 'split', 'train') or ())} and {len(_at(run, 'split', 'test') or ())}",
            str(_at(run, "scene_sha256") or BLANK),
        )
        for run in trained
    ]
    header = ("scene", "layout", "resolution", "training and held-out views", "SHA-256")
    return _Table((header, *rows)) if rows else None


def _expected(certificate: Certificate, trained: Sequence[SceneRun]) -> tuple[_Block, ...]:
    levels = _listed(
        [(f"Level {rung.name.value}", f"{rung.words}: {rung.shown_by}") for rung in certificate.proof]
    )
    header = ("scene", "criteria met", "PSNR", "SSIM", "LPIPS", "Gaussians", "it/s", "seconds")
    rows = [
        (
            run.scene,
            f"{sum(item.outcome is Outcome.MET for item in run.criteria)} of {len(run.criteria)}",
            _figure(_at(run, "heldout", "psnr"), 2),
            _figure(_at(run, "heldout", "ssim"), 4),
            _figure(_at(run, "heldout", "lpips"), 4),
            _figure(_at(run, "gaussians", "final"), 0),
            _figure(_at(run, "iterations_per_second"), 2),
            _figure(run.seconds, 0),
        )
        for run in trained
    ]
    again = "Another run is held against these figures with splatfix certify --baseline certificate.json."
    return (*levels, *((_Table((header, *rows)), again) if rows else (BLANK,)))


def _listed(items: Sequence[tuple[str, str]]) -> tuple[_Block, ...]:
    """A list, which LaTeX wants to have items, or nothing."""
    return (_List(tuple(items)),) if items else ()


def _notes(certificate: Certificate) -> tuple[_Block, ...]:
    items = [("Not certified", reason) for reason in certificate.reasons]
    items += [(f"Reservation, {item.scene}", item.reason) for item in certificate.notes]
    items += [(f"Unreadable, {item.scene}", item.reason) for item in certificate.unreadable]
    items += [(f"Skipped, {item.scene}", item.reason) for item in certificate.skipped]
    if certificate.interrupted or certificate.unfinished:
        items.append(("Not finished", "not every scene of the suite was trained"))
    return (*_listed(items), f"Certificate issued {certificate.issued}.", BLANK)


def _at(run: SceneRun, *path: str) -> Any:
    value: Any = run.result
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _each(trained: Sequence[SceneRun], value: Callable[[SceneRun], Any]) -> str:
    """The values of all scenes, each once."""
    found = dict.fromkeys(BLANK if value(run) is None else str(value(run)) for run in trained)
    return ", ".join(found)


def _figure(value: Any, digits: int) -> str:
    measured = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.{digits}f}" if measured else "not measured"
