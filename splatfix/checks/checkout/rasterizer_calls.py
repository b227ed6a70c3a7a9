"""Whether what a checkout calls is answered: by a rasterizer that is installed, or by a drop-in."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from splatfix.core.words import counted
from splatfix.knowledge.dropins import Dropin, Face, dropin_named, face_of
from splatfix.model import Checkout, ExtensionCall, RenderCall, SplatPackage

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
        problems = fewest(calls, face) if module == dropin.module else []
        if problems:
            yield f"{function}() in {file}:{calls[0].line}", problems
    guarded = {name for item in checkout.guarded for name in item.names}
    for call in checkout.extension_calls:
        if call.module != dropin.module and not call.module.startswith(f"{dropin.module}."):
            continue
        name = f"{call.module}.{call.name}".removeprefix(f"{dropin.module}.")
        if call.name in guarded and name not in face.functions:
            continue  # its import fails, and the code goes on without it
        problem = _not_answered(call, name, face)
        if problem:
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
    if parameters is None:
        return ""
    extra = [keyword for keyword in call.keywords if keyword not in parameters]
    if extra:
        return f"it gives {name} {', '.join(extra)}, which it does not know"
    if call.positional > len(parameters):
        return f"it gives {name} {call.positional} arguments, of which it knows {len(parameters)}"
    return ""


def differences(call: RenderCall, face: Face) -> list[str]:
    """In what a call of a rasterizer does not fit, in words."""
    problems: list[str] = []
    if call.settings_positional >= 0 and face.settings is not None:
        required = face.settings[: len(face.settings) - face.settings_defaults]
        by_position = face.settings[: call.settings_positional]
        problems += _keywords("settings", call.settings, face.settings, required, by_position)
    if (call.forward or call.forward_positional > 0) and face.forward is not None:
        required = face.forward[: face.forward_required]
        by_position = face.forward[: call.forward_positional]
        problems += _keywords("the call", call.forward, face.forward, required, by_position)
    if face.returns is not None and call.unpacks is not None and call.unpacks != face.returns:
        problems.append(f"it takes {counted(call.unpacks, 'result')}, {face.returns} come back")
    elif face.returns is not None and call.at_least > face.returns:
        problems.append(f"it takes result {call.at_least}, {face.returns} come back")
    else:
        # image and radii come first everywhere; what comes after them has the same place in several variants
        for variable, value in list(zip(call.results, face.values, strict=False))[2:]:
            if not _may_be(variable, value):
                problems.append(f"it takes {variable} where {value} comes back")
    return problems


def _may_be(variable: str, value: str) -> bool:
    """A variable is named after a result (``depth_image`` after ``invdepths``, ``listsRender`` after ``listBufferRender``),
    or tells nothing (``_``)."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", variable)]
    value = value.lower()
    # shorter ones (of, to, map) are in nearly every name
    return not parts or any(len(part) > 3 and (part in value or part.rstrip("s") in value) for part in parts)


def _keywords(
    subject: str,
    keywords: Sequence[str],
    parameters: Sequence[str],
    required: Sequence[str],
    by_position: Sequence[str],
) -> Iterator[str]:
    extra = [name for name in keywords if name not in parameters]
    if extra:
        yield f"{subject} gives {', '.join(extra)}, which it does not know"
    missing = [name for name in required if name not in keywords and name not in by_position]
    if missing:
        yield f"{subject} leaves out {', '.join(missing)}"


def call_words(call: RenderCall) -> str:
    """A call of a rasterizer, for people."""
    settings = f"settings {' '.join(call.settings)}" if call.settings else "settings from elsewhere"
    return settings + (f"; takes {counted(call.unpacks, 'result')}" if call.unpacks is not None else "")
