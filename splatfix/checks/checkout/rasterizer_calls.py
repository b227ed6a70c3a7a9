"""Whether what a checkout calls is answered: by a rasterizer that is installed, or by a drop-in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from splatfix.core.words import counted
from splatfix.facts import Checkout, ExtensionCall, RenderCall, SplatPackage
from splatfix.knowledge.dropins import Dropin, Face, dropin_named, face_of

# What every torch module has.
OF_MODULES = frozenset({"to", "cuda", "cpu", "train", "eval", "float", "parameters", "requires_grad_"})


def installed_face(package: SplatPackage) -> Face:
    """How an installed package is called; of a drop-in the manifest tells, of any other its Python source."""
    dropin = dropin_named(package.dropin)
    if dropin is not None:
        return face_of(dropin)
    return Face(
        settings=package.settings,
        settings_defaults=package.settings_defaults,
        forward=package.forward,
        forward_required=package.forward_required,
        returns=package.returns,
    )


def alternatives(calls: Iterable[RenderCall]) -> Mapping[tuple[str, str, str], list[RenderCall]]:
    """Calls by file, function and module: those in one function are chosen by an option at run time, one that fits will do."""
    groups: dict[tuple[str, str, str], list[RenderCall]] = {}
    for call in calls:
        groups.setdefault((call.file, call.function, call.module), []).append(call)
    return groups


def unanswered(checkout: Checkout, dropin: Dropin) -> Iterator[tuple[str, list[str]]]:
    """Every call in a checkout that a drop-in does not answer: where it is, and the arguments and values that are lacking."""
    face = face_of(dropin)
    for (file, function, module), calls in alternatives(checkout.calls).items():
        if module == dropin.module and (problems := fewest(calls, face)):
            yield f"{function}() in {file}:{calls[0].line}", problems
    hidden = {name for item in checkout.guarded for name in item.names}
    for call in checkout.extension_calls:
        inside = call.module == dropin.module or call.module.startswith(f"{dropin.module}.")
        name = f"{call.module}.{call.name}".removeprefix(f"{dropin.module}.")
        if call.name in hidden and name not in face.functions:
            continue  # its import fails, and the code goes on without it
        if inside and (problem := _not_answered(call, name, face)):
            yield f"{call.file}:{call.line}", [problem]


def fewest(calls: Iterable[RenderCall], face: Face) -> list[str]:
    """In what the call that fits best does not fit; empty where it does."""
    return min((differences(call, face) for call in calls), key=len)


def _not_answered(call: ExtensionCall, name: str, face: Face) -> str:
    if name.partition(".")[2] in OF_MODULES:
        return ""
    if name not in face.functions:
        return f"it calls {name}, which it lacks"
    parameters = face.functions[name]
    extra = [word for word in call.keywords if parameters is not None and word not in parameters]
    if extra:
        return f"it gives {name} {', '.join(extra)}, which it does not know"
    if parameters is not None and call.positional > len(parameters):
        return f"it gives {name} {call.positional} arguments, of which it knows {len(parameters)}"
    return ""


def differences(call: RenderCall, face: Face) -> list[str]:
    """In what a call of a rasterizer does not fit, in words."""
    problems: list[str] = []
    if call.settings_positional >= 0 and face.settings is not None:
        required = face.settings[: len(face.settings) - face.settings_defaults]
        given = {*face.settings[: call.settings_positional], *call.settings}
        problems += _keywords(
            "settings", call.settings, face.settings, [n for n in required if n not in given]
        )
    if (call.forward or call.forward_positional > 0) and face.forward is not None:
        given = {*face.forward[: call.forward_positional], *call.forward}
        missing = [name for name in face.forward[: face.forward_required] if name not in given]
        problems += _keywords("the call", call.forward, face.forward, missing)
    if call.unpacks is not None and face.returns is not None and call.unpacks != face.returns:
        problems.append(f"it takes {counted(call.unpacks, 'result')}, {face.returns} come back")
    elif face.returns is not None and call.at_least > face.returns:
        problems.append(f"it takes result {call.at_least}, {face.returns} come back")
    else:
        # image and radii come first everywhere; what comes after them has the same place in several variants
        taken = list(zip(call.results, face.values, strict=False))[2:]
        problems += [f"it takes {a} where {b} comes back" for a, b in taken if not _may_be(a, b)]
    return problems


def _may_be(variable: str, value: str) -> bool:
    """A variable is named after a result (``depth_image`` after ``invdepths``, ``listsRender`` after ``listBufferRender``),
    or tells nothing (``_``)."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", variable)]
    value = value.lower()
    return not words or any(len(word) > 3 and (word in value or word.rstrip("s") in value) for word in words)


def _keywords(what: str, given: tuple[str, ...], known: tuple[str, ...], missing: list[str]) -> Iterator[str]:
    extra = [name for name in given if name not in known]
    if extra:
        yield f"{what} gives {', '.join(extra)}, which it does not know"
    if missing:
        yield f"{what} leaves out {', '.join(missing)}"


def call_words(call: RenderCall) -> str:
    """A call of a rasterizer, for people."""
    settings = f"settings {' '.join(call.settings)}" if call.settings else "settings from elsewhere"
    return settings + (f"; takes {counted(call.unpacks, 'result')}" if call.unpacks is not None else "")
