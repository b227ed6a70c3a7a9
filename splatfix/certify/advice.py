"""Why a criterion failed, and what to do about it: by what the trainer printed, or by what failed first."""

import re
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from smoke_trainer.record import TrainerError
from splatfix.certify.model import CODE_AS_INSTALLED, Criterion, KernelCheck, Outcome, SceneRun
from splatfix.core.runner import Completed
from splatfix.core.step import Step, run, say, value_options
from splatfix.explain import cause_of, explain_message

# Other criteria fail by what was measured, which says itself what is wrong.
_FAIL_BY_OUTPUT = ("training-finishes", "no-cuda-error")


def way_out(
    kernels: Sequence[KernelCheck],
    runs: Sequence[SceneRun],
    python: str | None,
    diagnosis: Sequence[Criterion] = (),
) -> Step | None:
    """Return what to do about altered files, else about the first failed kernel, else about the first failed criterion; None
    where nothing of that failed."""
    for item in diagnosis:
        if item.code == CODE_AS_INSTALLED and item.outcome is Outcome.FAILED:
            return say(f"Next: {item.advice}")
    failed = next((item for item in kernels if item.outcome is Outcome.FAILED), None)
    if failed is None:
        advice = next((item.advice for scene in runs for item in scene.failed if item.advice), "")
        return say(f"Next: {advice}") if advice else None
    module, environment = failed.implementation.partition(".")[0], value_options({"--python": python})
    if not failed.imported:
        text = f"Next: see what keeps {failed.implementation} from its import"
        return run("splatfix", "diagnose", *environment, text=text)
    if failed.kind == "native":
        return run("splatfix", "install", "SOURCE", text=f"Next: install {module} anew from its source")
    if failed.kind == "ours":
        return say(
            "Next: reinstall splatfix; torch's arithmetic is right, and its own kernels are not what they were."
        )
    package = module.replace("_", "-")
    text = f"Next: put {package} back; where that changes nothing, sitecustomize or a .pth file changes it"
    return run("splatfix", "install", "--repair", package, *environment, text=text)


def explained(item: Criterion, output: str, *, own: Collection[str] = (), error: str = "") -> Criterion:
    """Return the criterion with the cause that the trainer's whole output names, where it failed by what was printed.

    For the classes of ``own`` the criterion's own advice is the better. ``error`` is the message that the trainer ended with.
    """
    if item.outcome is not Outcome.FAILED or item.code not in _FAIL_BY_OUTPUT:
        return item
    # lines of JSON are the trainer's progress
    cause = cause_of("\n".join(line for line in output.splitlines() if not line.startswith("{")))
    if cause is not None:
        item = replace(item, why=f"{item.why} {cause.why.rstrip('.')} [{cause.name}].".strip())
        if cause.name not in own:
            item = replace(item, advice=steps_in_words(cause.fix))
    # what is known of a message fits its numbers and names, which the fix of its class does not
    message = explain_message(error)
    if message is not None:
        item = replace(item, advice=f"{message.meaning} {steps_in_words(message.steps)}")
    return item


def steps_in_words(steps: Iterable[Step]) -> str:
    """Return what to do, in one line."""
    lines = []
    for step in steps:
        if step.command is None:
            lines.append(step.text)
        else:
            lines.append(f"{step.text}: {step.command.shell(windows=False)}")
    return "; ".join(lines)


def end_of(error: TrainerError | None, done: Completed) -> str:
    """Return why a script ended, in its own words: the exception with its place in the checkout, else its last line of output."""
    if error is not None:
        ending = str(error.type)
        if error.message.strip():
            ending += f": {error.message.strip().splitlines()[0]}"
        if error.place:
            ending += f" ({error.place}, in {error.function})"
        return ending
    if done.error:
        return done.error
    # progress bars end their lines with a carriage return
    output = re.split(r"[\r\n]+", f"{done.stdout}\n{done.stderr}")
    lines = list(filter(None, map(str.strip, output)))
    for line in reversed(lines):
        if re.search(r"\berror\b", line, re.IGNORECASE):
            return line
    return lines[-1] if lines else done.why()
