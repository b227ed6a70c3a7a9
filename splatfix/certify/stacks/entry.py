"""Which script of a checkout is run, and what of the checkout that script reaches."""

from pathlib import Path

from splatfix.certify.request import RehearseRequest
from splatfix.certify.stacks.subject import METRICS, RENDER
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.core.errors import SplatfixError
from splatfix.core.source_pattern import NamePattern
from splatfix.core.step import Step, run, value_options
from splatfix.facts.checkout import Reach, as_reached, find_trainers
from splatfix.knowledge.dropins import has_reference
from splatfix.model import Checkout

_MOST_LISTED = 8


def choose_script(request: RehearseRequest, checkout: Checkout, *typed: str) -> str:
    """Return the trainer that was asked for, else ``train.py``, else the only one; a refusal repeats the other options.

    Raises:
        SplatfixError: ``no-such-script``, ``which-script``, ``no-trainer`` (exit code 2).
    """
    root = Path(checkout.folder)
    if request.script:
        if not (root / request.script).is_file():
            todo = _start_with(request, find_trainers(root), typed)
            raise SplatfixError.of(
                "certify.no-such-script", checkout=request.checkout, script=request.script, todo=todo
            )
        return Path(request.script).as_posix()
    trainers = find_trainers(root)
    if len(trainers) > 1:
        todo = _start_with(request, trainers, typed)
        raise SplatfixError.of("certify.which-script", checkout=request.checkout, todo=todo)
    if trainers:
        return trainers[0]
    own = next((item.source for item in checkout.sources if item.path == "."), checkout.package)
    if own is None:
        raise SplatfixError.of("certify.no-trainer", folder=str(request.checkout))
    folder = request.checkout
    if has_reference(own.label):
        raise SplatfixError.of("certify.extension-with-reference", folder=folder, label=own.label)
    raise SplatfixError.of("certify.extension-alone", folder=folder, label=own.label)


def _start_with(
    request: RehearseRequest, trainers: tuple[str, ...], typed: tuple[str, ...]
) -> tuple[Step, ...]:
    given = {"--scene": request.scene, "--python": request.python, "--face": request.face or None}
    words = ("splatfix", "certify", "--repo", str(request.checkout), *typed, *value_options(given))
    return tuple(run(*words, "--script", name) for name in trainers[:_MOST_LISTED])


def not_called_by(checkout: Checkout, script: str) -> frozenset[str]:
    """Modules of rasterizers that other scripts than the trainer call, and it alone does not."""
    reach = as_reached(checkout, (script,), ())[1]
    called = {call.module for call in checkout.calls if reach.has(call.file, call.function)}
    return frozenset(call.module for call in checkout.calls) - called


def reached_by(checkout: Checkout, script: str) -> tuple[Checkout, Reach]:
    """The checkout as far as the trainer, its renderer and its metrics reach it."""
    patterns = [pattern for pattern in source_patterns() if isinstance(pattern, NamePattern)]
    return as_reached(checkout, scripts_of(checkout, script), patterns)


def scripts_of(checkout: Checkout, script: str) -> tuple[str, ...]:
    """Those that are run: the trainer, and ``render.py`` and ``metrics.py`` where the checkout has them."""
    beside = [name for name in (RENDER, METRICS) if Path(checkout.folder, name).is_file()]
    return tuple(dict.fromkeys((script, *beside)))
