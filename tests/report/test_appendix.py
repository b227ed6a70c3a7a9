"""The artifact-evaluation appendix: what the certificate knows, and blanks for the rest."""

import dataclasses
import re
from pathlib import Path

import pytest

from splatfix.certify.model import Verdict
from splatfix.core.step import Command
from splatfix.report.appendix import BLANK, latex, markdown
from tests.hostile.words import CONTROL, MARKUP, NAMES, UNICODE
from tests.report.test_certificate import RESULT, certificate

FORM = (
    *("Abstract", "Artifact check-list (meta-information)", "How to access", "Hardware dependencies"),
    *("Software dependencies", "Data sets", "Installation", "Experiment workflow"),
    *("Evaluation and expected results", "Experiment customization", "Notes"),
)
CHECK_LIST = tuple(
    """Algorithm; Program; Compilation; Binary; Model; Data set; Run-time environment; Hardware; Run-time state; Execution;
    Metrics; Output; Experiments; How much disk space required (approximately)?;
    How much time is needed to prepare workflow (approximately)?;
    How much time is needed to complete experiments (approximately)?; Publicly available?;
    Code licenses (if publicly available)?; Data licenses (if publicly available)?; Workflow automation framework used?;
    Archived (provide DOI)?""".replace("\n    ", " ").split("; ")
)


def check_list(text: str) -> dict[str, str]:
    part = text.partition("## Artifact check-list")[2].partition("\n## ")[0]
    return {
        label.removesuffix(":"): said for label, said in re.findall(r"^- \*\*(.+?)\*\* (.+)$", part, re.M)
    }


def test_the_form_is_whole_and_in_order() -> None:
    text = markdown(certificate())
    assert tuple(re.findall("^## (.+)$", text, re.M)) == FORM
    assert tuple(check_list(text)) == CHECK_LIST
    assert tuple(re.findall(r"\\subsection\{(.+)\}", latex(certificate()))) == FORM


def test_what_the_certificate_does_not_know_is_a_blank() -> None:
    known = {"Compilation", "Model", "Run-time state", "Publicly available?", "Archived (provide DOI)?"}
    blank = {label for label, said in check_list(markdown(certificate())).items() if said == BLANK}
    assert known < blank and not blank & {"Algorithm", "Program", "Data set", "Execution", "Experiments"}
    empty = check_list(markdown(certificate(scenes=())))
    unknown = ("Algorithm", "Binary", "Data set", "Execution", "Run-time environment", "Metrics")
    assert "train" not in empty["Program"] + empty["Output"]  # a run level without training
    assert {empty[label] for label in unknown} == {BLANK}
    assert not re.search(r"\\begin\{itemize\}\s*\\end", latex(certificate(proof=())))


def test_what_it_knows_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    engine = {"file": "fused_ssim.so", "sha256": "12ef"}
    found = certificate(
        result={**RESULT, "implementations": {"ssim": engine}},
        verdict=Verdict.NOT_CERTIFIED,
        reasons=("garden: loss-trend",),
        environment={"GPU": "NVIDIA H100", "torch": "2.13.0", "python": "/home/ada/env/bin/python"},
        repeat=Command(("splatfix", "certify", "--python", "/home/ada/env/bin/python")),
    )
    text = markdown(found)
    listed = check_list(text)
    assert listed["Hardware"] == "Run on cpu; GPU: NVIDIA H100"
    assert listed["Run-time environment"] == "torch 2.13.0; python \\~/env/bin/python"
    assert listed["Binary"] == "fused_ssim.so (SHA-256 12ef)"
    assert "strategy budget" in listed["Algorithm"] and "seed 3" in listed["Execution"]
    assert "| garden | 1 of 2 | 26.10 | 0.8123 | not measured | 250 | 4.50 | 12 |" in text
    assert "    splatfix certify --python ~/env/bin/python\n" in text
    assert "- **Not certified:** garden: loss-trend" in text and "- **Skipped, stump:**" in text
    assert "12ef" in latex(found)


COMMANDS = {
    *("appendix", "section", "subsection", "begin", "end", "item", "textbf", "hline", "ttfamily"),
    *("textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar"),
}


@pytest.mark.parametrize(
    "words", [*CONTROL, *MARKUP, *NAMES, *UNICODE, "\\input{/etc/passwd}", "[x]--$1 & 2% #_^~"]
)
def test_latex_shows_what_strangers_wrote(words: str) -> None:
    """No text of a certificate is a command, opens a group, or hides a line."""
    found = certificate(result={**RESULT, "notes": [words], "layout": words})
    run = dataclasses.replace(found.scenes[0], scene=words)
    text = latex(
        dataclasses.replace(found, summary=words, reasons=(words,), scenes=(run,), environment={words: words})
    )
    plain = re.sub(r"\\[\\&%$#_{}]", "", text)
    assert set(re.findall(r"\\([a-zA-Z]+)", plain)) <= COMMANDS
    assert plain.count("{") == plain.count("}")
    assert not re.search(r"\\(?![a-zA-Z])|[%#$^~_]", plain)
    # a cell separator is one of a table's own lines
    assert all(line.endswith("\\\\") for line in re.sub(r"\\&", "", text).splitlines() if "&" in line)
    assert all(line.isprintable() for line in text.split("\n"))
