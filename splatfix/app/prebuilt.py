"""Prebuilt wheels for an environment and its GPUs, which ``splatfix install`` looks for before it builds."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from splatfix.context import Context
from splatfix.core.errors import Exit, Rejected
from splatfix.core.reading import resolved_folder
from splatfix.core.redact import without_credentials
from splatfix.core.words import few
from splatfix.model import Considered
from splatfix.model.steps import FetchWheel
from splatfix.plan import Request
from splatfix.plan.checkout import read_sources
from splatfix.wheels.listing import chosen_indexes
from splatfix.wheels.search import Finder, is_name, wanted_by_name, wanted_by_source
from splatfix.wheels.web import Web


class Prebuilt(Struct, frozen=True):
    """What was found in the place of builds."""

    steps: Mapping[str, FetchWheel] = field(default_factory=dict)
    """By the label of a source, or a name as it was typed, the proven wheel."""
    fetchers: Mapping[str, Callable[[Path], Path]] = field(default_factory=dict)
    """By the requirement of a step, what brings its wheel into a folder and proves it again."""
    looked_for: bool = False
    rejected: tuple[Considered, ...] = ()
    """Why the others have none."""
    problem: Rejected | None = None
    """``no-wheel``, where one of them has none; None where all have one."""


def _not_looked(reason: str) -> Prebuilt:
    return Prebuilt(problem=Rejected.of("app.no-wheel", exit_code=Exit.UNDETERMINED, reasons=reason))


NO_WHEELS = _not_looked("nothing was looked for")


def find_prebuilt(request: Request, context: Context, indexes: tuple[str, ...] = ()) -> Prebuilt:
    """Find the prebuilt wheels for the folders and names of a request; none, with the reason, where torch or target are lacking.

    Those of strangers are looked at only where only prebuilt ones were asked for, or their index is named.

    Args:
        indexes: those of the request as they were typed, with their logins.

    Raises:
        SplatfixError: ``unknown-index``, ``not-a-package`` (exit code 2).
    """
    if not request.find or request.backend not in ("native", "wheels", "auto"):
        return NO_WHEELS
    maintained = request.backend != "wheels"
    # with wheels alone what is no folder has to be a name
    names = [text for text in request.sources if is_package(text, known=not maintained)]
    wanted = {name: wanted_by_name(name) for name in names}
    chosen = chosen_indexes(request.indexes, maintained=maintained, offline=request.offline)
    torch, interpreter = context.torch, context.interpreter
    if not chosen:
        return _not_looked("--offline leaves no index, and no folder was named with --index")
    if torch is None or torch.cuda is None or interpreter is None:
        return _not_looked("a wheel must fit torch, and no CUDA build of torch is in the environment")
    if context.no_target:
        return _not_looked("no GPU is here that a wheel could be for: name one with --target")
    read = read_sources((text for text in request.sources if text not in names), context.facts)
    if not isinstance(read, Rejected):  # the plan says what is wrong with them
        sources = read.built_from.items()
        wanted |= {name: wanted_by_source(source) for name, source in sources if source.needs_cuda}
    if not wanted:
        return NO_WHEELS
    web = Web((*indexes, *(index.address for index in chosen)))
    steps, fetchers, rejected, exit_code = {}, {}, list[Considered](), Exit.UNDETERMINED
    for label, item in wanted.items():
        finder = Finder(item, context, torch, web)
        search = finder.find(chosen)
        if search.exit_code is Exit.FAILURE:
            exit_code = Exit.FAILURE
        if search.best is None:
            considered = (*search.unanswered, *search.rejected)
            why = few([f"{item.what}: {item.why}" for item in considered], 3, "; ")
            why = why or f"no wheel in {', '.join(search.asked) or 'any index'}"
            rejected.append(Considered(f"a prebuilt wheel of {search.name}", why))
            continue
        requirement = without_credentials(search.best.link.requirement)  # a link may be signed
        fetchers[requirement] = partial(finder.fetch, search.best)
        steps[label] = FetchWheel(
            subject=search.name,
            version=search.best.link.wheel.split("-")[1],
            requirement=requirement,
            targets=context.archs,
            origin=search.best.link.index,
        )
    problem = None
    if rejected:
        reasons = "; ".join(item.why for item in rejected)
        problem = Rejected.of("app.no-wheel", exit_code=exit_code, reasons=reasons)
    return Prebuilt(steps, fetchers, True, tuple(rejected), problem)


def is_package(source: str, *, known: bool = False) -> bool:
    """Tell whether a source is no folder but the name of a package.

    Args:
        known: nothing but a folder or a name was asked for.
    """
    return resolved_folder(source) is None and (known or is_name(source))
