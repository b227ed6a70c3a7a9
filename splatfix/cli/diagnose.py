"""What is wrong here: ``splatfix diagnose``, ``inspect`` and ``checks``."""

import gc
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import app
from splatfix.cli import conflicts, options
from splatfix.cli.options import examples, file_to_write, finish, option

checks_app = typer.Typer(help="List the checks, or show the page of one.", no_args_is_help=True)

CODES = options.names_of(lambda: app.checks.list_checks(), "checks", "code")


def diagnose(
    context: typer.Context,
    python: options.Python = None,
    target: options.Targets = None,
    repo: Annotated[Optional[Path], option("diagnose.repo")] = None,
    imports: Annotated[bool, option("diagnose.imports")] = False,
    only: Annotated[Optional[list[str]], option("diagnose.only", autocompletion=CODES)] = None,
    skip: Annotated[Optional[list[str]], option("diagnose.skip", autocompletion=CODES)] = None,
    facts_file: Annotated[Optional[Path], option("diagnose.facts_file")] = None,
    save: Annotated[Optional[Path], option("diagnose.save", callback=file_to_write)] = None,
    record: Annotated[Optional[Path], option("diagnose.record")] = None,
    redact: Annotated[bool, option("diagnose.redact")] = True,
    form: Annotated[options.Annotations, option("diagnose.form")] = options.Annotations.text,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Find out what is wrong with this machine and one Python environment, and how to fix it."""
    gc.disable()  # a short-lived process; collecting among the imports takes a tenth of its time
    targets = options.archs(target)
    conflicts.refuse(context)
    options.one_form(as_json, form.value)
    request = app.diagnose.DiagnoseRequest(
        python=python,
        targets=targets,
        repo=repo,
        facts_file=facts_file,
        save=save,
        record=record,
        redact=redact,
        try_imports=imports,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
    )
    finish(app.diagnose.diagnose(request, verbose=verbose, as_json=as_json), as_json, form.value)


def inspect(
    paths: Annotated[list[Path], option("inspect.paths")],
    target: options.Targets = None,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Show the SASS and PTX inside native files, and which GPU architectures can run them."""
    inspected = app.inspect.inspect_files(paths, options.arch_names(target), verbose=verbose)
    finish(inspected, as_json)


@checks_app.command("list", epilog=examples("checks-list"))
def list_checks(as_json: options.Json = False) -> None:
    """List every check with its code, family and title."""
    finish(app.checks.list_checks(), as_json)


@checks_app.command("show", epilog=examples("checks-show"))
def show_check(
    code: Annotated[str, option("checks-show.code", autocompletion=CODES)],
    as_json: options.Json = False,
) -> None:
    """Show the page of one check: what it looks at, and why it matters."""
    finish(app.checks.show_check(code), as_json)
