"""What a project declares, judged and mended: ``splatfix project``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import app
from splatfix.cli import options
from splatfix.cli.options import confirm_unless, examples, finish, one_form, option

project_app = typer.Typer(
    help="Judge what a project's files would install, and mend them.", no_args_is_help=True
)
Folder = Annotated[Path, option("project-check.folder")]
Targets = Annotated[Optional[list[str]], option("project-check.target")]
FactsFile = Annotated[Optional[Path], option("project-check.facts_file")]


@project_app.command("check", epilog=examples("project-check"))
def check(
    folder: Folder = Path(),
    target: Targets = None,
    facts_file: FactsFile = None,
    form: Annotated[options.Annotations, option("project-check.form")] = options.Annotations.text,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Say what will fail on the target, before anything is installed."""
    one_form(as_json, form.value)
    request = app.project.ProjectRequest(
        folder=folder, targets=options.archs_or_auto(target), facts_file=facts_file, verbose=verbose
    )
    finish(app.project.check(request), as_json, form.value)


@project_app.command("write", epilog=examples("project-write"))
def write(
    folder: Folder = Path(),
    target: Targets = None,
    facts_file: FactsFile = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Write the smallest edit that mends what check finds, so that it can be undone."""
    request = app.project.ProjectRequest(
        folder=folder, targets=options.archs_or_auto(target), facts_file=facts_file, as_json=as_json
    )
    finish(app.project.write(request, partial(confirm_unless, yes)), as_json)
