"""``splatfix cache``: the wheels that installations have built and kept."""

from __future__ import annotations

import typer

from splatfix.cli import interrupted, options

app = typer.Typer(help="The wheels that splatfix has built and kept.", no_args_is_help=True)


@app.command("list")
def list_wheels(as_json: options.Json = False) -> None:
    """Show every wheel in the cache."""
    from splatfix.core.files import dumps
    from splatfix.install import WheelCache
    from splatfix.report import console, installation

    cache = WheelCache()
    if as_json:
        typer.echo(dumps(installation.cache_document(cache.folder, cache.entries())), nl=False)
    else:
        installation.show_cache(console.out(), cache.folder, cache.entries())


@app.command("clear")
def clear() -> None:
    """Remove every wheel from the cache."""
    from splatfix.install import WheelCache
    from splatfix.report import console

    cache = WheelCache()
    with interrupted.saying(
        lambda: f"Interrupted: {len(cache.entries())} wheel(s) are still in {cache.folder}."
    ):
        removed = cache.clear()
    console.out().print(f"{removed} wheel(s) removed from {cache.folder}", markup=False, soft_wrap=True)
