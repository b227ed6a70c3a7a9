"""``splatfix cache``: the wheels that installations have built and kept."""

from __future__ import annotations

from typing import Annotated, Optional

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
def clear(
    name: Annotated[
        Optional[str],
        typer.Argument(help="A distribution, or the beginning of a key; all when left out.", metavar="NAME"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing.")] = False,
) -> None:
    """Remove every wheel from the cache, or those of one distribution, or one by its key."""
    from splatfix.install import WheelCache
    from splatfix.report import console

    cache = WheelCache()
    chosen = cache.named(name) if name else cache.entries()
    if chosen and not yes and console.out().is_terminal:
        size = sum(entry.size for entry in chosen) / 2**20
        typer.confirm(f"Remove {len(chosen)} wheel(s), {size:.1f} MiB, from {cache.folder}?", abort=True)
    with interrupted.on_interrupt(
        lambda: f"Interrupted: {len(cache.entries())} wheel(s) are still in {cache.folder}."
    ):
        removed = cache.clear(chosen if name else None)
    console.out().print(f"{removed} wheel(s) removed from {cache.folder}", markup=False, soft_wrap=True)
