"""What is wrong here: ``splatfix diagnose`` and ``inspect``."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

from splatfix.cli import conflicts, options
from splatfix.cli.options import file_to_write, finish, option

CODES = options.names_of(lambda: import_module("splatfix.app.diagnose").list_checks(), "checks", "code")


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
    listing: Annotated[bool, option("diagnose.listing")] = False,
    code: Annotated[Optional[str], option("diagnose.code", autocompletion=CODES)] = None,
    form: Annotated[Literal["text", "github"], option("diagnose.form")] = "text",
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Find out what is wrong with this machine and one Python environment, and how to fix it."""
    from splatfix.app import diagnose as use_case

    targets = options.archs(target)
    conflicts.refuse(context)
    options.one_form(as_json, form)
    if listing:
        finish(use_case.list_checks(), as_json)
    if code is not None:
        finish(use_case.show_check(code), as_json)
    request = options.request_of(use_case.DiagnoseRequest, locals(), targets=targets, try_imports=imports)
    finish(use_case.diagnose(request), as_json, form, verbose=verbose)


def inspect(
    paths: Annotated[list[Path], option("inspect.paths")],
    target: options.Targets = None,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Show the SASS and PTX inside native files, and which GPU architectures can run them."""
    from splatfix.app import inspect as use_case

    targets = tuple(arch.sm for arch in options.archs(target))
    finish(use_case.inspect_files(paths, targets), as_json, verbose=verbose)
