"""Why a criterion failed, and what to do about it: by what the trainer printed, else the next look by the criterion's code."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from splatfix.certify.criteria.criterion import SHORTEST
from splatfix.certify.criteria.running import CODE_AS_INSTALLED
from splatfix.certify.model import Criterion, KernelCheck, Outcome, SceneRun
from splatfix.core.codec import from_json
from splatfix.core.step import Step, run, say, value_options
from splatfix.core.toml import table_beside
from splatfix.explain import cause_of, explain_message

# Other criteria fail by what was measured, which says itself what is wrong.
_FAIL_BY_OUTPUT = ("training-finishes", "no-cuda-error")


class CriterionAdvice(Struct, frozen=True):
    """A row of ``advice.toml``."""

    codes: tuple[str, ...]
    text: str
    cpu: str = ""
    pytorch: str = ""


@cache
def _advice() -> Mapping[str, CriterionAdvice]:
    document = table_beside(__file__)
    rows = from_json(tuple[CriterionAdvice, ...], document["advice"])
    return {code: row for row in rows for code in row.codes}


def advised(item: Criterion, renderer: str, device: str) -> Criterion:
    """Return the criterion with what to do about it; as it is where it was met, could not be measured here, or has advice."""
    if item.advice:
        return item
    if item.outcome is Outcome.UNDETERMINED:
        return replace(item, advice=f"Train for {SHORTEST} iterations or more (--iterations).")
    if item.outcome is not Outcome.FAILED and item.code != "scene-readable":
        return item
    advice = _advice().get(item.code)
    if advice is None:
        return replace(item, advice="Run splatfix diagnose in the same environment.")
    text = advice.text
    if device == "cpu" and advice.cpu:
        text = advice.cpu
    elif (renderer, device) == ("torch", "cpu") and advice.pytorch:
        text = advice.pytorch
    return replace(item, advice=text)


def way_out(
    kernels: Sequence[KernelCheck],
    runs: Sequence[SceneRun],
    python: str | None,
    diagnosis: Sequence[Criterion] = (),
) -> Step | None:
    """What to do about altered files, else about the first failed kernel, else about the first failed criterion; None where
    nothing of that failed."""
    for item in diagnosis:
        if item.code == CODE_AS_INSTALLED and item.outcome is Outcome.FAILED:
            return say(f"Next: {item.advice}")
    failed = next((item for item in kernels if item.outcome is Outcome.FAILED), None)
    if failed is not None:
        module = failed.implementation.partition(".")[0]
        package, environment = module.replace("_", "-"), value_options({"--python": python})
        argv = ["install", "--repair", package, *environment]
        text = f"put {package} back; where that changes nothing, sitecustomize or a .pth file changes it"
        if not failed.imported:
            argv = ["diagnose", *environment]
            text = f"see what keeps {failed.implementation} from its import"
        elif failed.kind == "native":
            argv, text = ["install", "SOURCE"], f"install {module} anew from its source"
        elif failed.kind == "ours":
            return say(
                "Next: reinstall splatfix; torch's arithmetic is right, and its own kernels are not what they were."
            )
        return run("splatfix", *argv, text=f"Next: {text}")
    advice = next((item.advice for scene in runs for item in scene.failed if item.advice), "")
    return say(f"Next: {advice}") if advice else None


def explained(criterion: Criterion, output: str, *, own: Collection[str] = (), error: str = "") -> Criterion:
    """Return the criterion with the cause that the trainer's whole output names, where it failed and has no advice yet.

    For the classes of ``own`` the criterion's own advice is the better. ``error`` is the message that the trainer ended with.
    """
    failed = criterion.outcome is Outcome.FAILED and criterion.code in _FAIL_BY_OUTPUT
    if not failed or criterion.advice:
        return criterion
    # lines of JSON are the trainer's progress
    cause = cause_of("\n".join(line for line in output.splitlines() if not line.startswith("{")))
    if cause is not None:
        criterion = replace(criterion, why=f"{criterion.why} {cause.why.rstrip('.')} [{cause.name}].".strip())
        if cause.name not in own:
            criterion = replace(criterion, advice=steps_in_words(cause.fix))
    # what is known of a message fits its numbers and names, which the fix of its class does not
    message = explain_message(error)
    if message is not None:
        criterion = replace(criterion, advice=f"{message.meaning} {steps_in_words(message.steps)}")
    return criterion


def steps_in_words(steps: Iterable[Step]) -> str:
    """What to do, in one line."""
    lines = []
    for step in steps:
        if step.command is None:
            lines.append(step.text)
        else:
            lines.append(f"{step.text}: {step.command.shell(windows=False)}")
    return "; ".join(lines)
