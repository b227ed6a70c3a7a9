"""What certificates say: ``splatfix report``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import app
from splatfix.cli import options
from splatfix.cli.options import OUTPUT, finish, folder_to_write, one_form, option

report_app = typer.Typer(help="Show, compare, merge, sign and verify certificates.", no_args_is_help=True)


class ReportForm(str, Enum):
    """What ``report show`` prints."""

    text = "text"
    markdown = "markdown"
    junit = "junit"
    prometheus = "prometheus"
    issue = "issue"
    appendix = "appendix"
    html = "html"
    badge = "badge"


class DiffForm(str, Enum):
    """What ``report diff`` prints."""

    text = "text"
    markdown = "markdown"


CertificateFile = Annotated[
    Path, typer.Argument(help="A certificate.json, or the report folder it is in.", metavar="FILE")
]


Keys = Annotated[
    Optional[list[Path]],
    option(
        "--key", "Check signatures with this ed25519 public key (PEM or OpenSSH); repeatable.", None, "PUBLIC"
    ),
]


@report_app.command(
    "show", epilog="Example: splatfix report show splatfix-report/certificate.json --format markdown"
)
def show(
    file: CertificateFile,
    form: Annotated[ReportForm, option("--format", "The form to print.", OUTPUT)] = ReportForm.text,
    verbose: Annotated[bool, option("--verbose -v", "Text: every criterion of every scene.", OUTPUT)] = False,
    key: Keys = None,
    as_json: options.Json = False,
) -> None:
    """Print a certificate in any form, as certify did; exits with 0 whatever its verdict is."""
    one_form(as_json, form.value)
    finish(app.report.show(file, key or (), verbose=verbose), as_json, form.value)


@report_app.command(
    "diff", epilog="Example: splatfix report diff monday/certificate.json today/certificate.json"
)
def diff(
    a: Annotated[Path, typer.Argument(help="The certificate to compare with, or its folder.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="The certificate to judge, or its folder.", metavar="B")],
    form: Annotated[DiffForm, option("--format", "The form to print.", OUTPUT)] = DiffForm.text,
    key: Keys = None,
    as_json: options.Json = False,
) -> None:
    """Compare two certificates and name the first cause that differs; exits with 1 when B is worse than A."""
    one_form(as_json, form.value)
    finish(app.report.diff(a, b, key or ()), as_json, form.value)


@report_app.command("merge", epilog="Example: splatfix report merge lab-*/certificate.json --out matrix")
def merge(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Certificates, or folders with certificate.json files below.", metavar="FILE|DIR..."
        ),
    ],
    out: Annotated[
        Path,
        option(
            "--out",
            "Folder for certificates.html, .md, .csv and .json.",
            OUTPUT,
            "DIR",
            callback=folder_to_write,
        ),
    ] = Path("splatfix-matrix"),
    key: Keys = None,
    as_json: options.Json = False,
) -> None:
    """Write many certificates as one matrix (GPU, driver, torch, stack), with failures grouped by cause."""
    finish(app.report.merge(paths, out, keys=key or ()), as_json)


ReportFolder = Annotated[
    Path, typer.Argument(help="A report folder, or the certificate.json in it.", metavar="FOLDER")
]


@report_app.command("sign", epilog="Example: splatfix report sign splatfix-report --key key.pem")
def sign(
    folder: ReportFolder,
    key: Annotated[
        Path, option("--key", "An ed25519 private key, in PEM or OpenSSH's form.", metavar="PRIVATE")
    ],
    as_json: options.Json = False,
) -> None:
    """Sign all files of a report folder, as an in-toto statement in certificate.intoto.jsonl."""
    finish(app.attest.sign(folder, key), as_json)


@report_app.command("verify", epilog="Example: splatfix report verify splatfix-report --key key.pub.pem")
def verify(
    folder: ReportFolder,
    key: Annotated[
        Path, option("--key", "The signer's ed25519 public key, in PEM or OpenSSH's form.", metavar="PUBLIC")
    ],
    python: Annotated[
        Optional[str],
        option("--python", "Also compare what ran with the files of this environment.", metavar="ENV"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check a signed report folder, offline: what is as it was signed, and what a signature says nothing about."""
    finish(app.attest.verify(folder, key, python), as_json)
