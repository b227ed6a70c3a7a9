"""Every criterion against a trainer that is broken in just that: the certificate is refused for that reason, and no other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from splatfix.certify import SUITES, Outcome, Suite, Verdict, certify
from splatfix.certify.criteria.gradients import REQUIRED_GROUPS
from splatfix.certify.scenes import NO_SCENES
from splatfix.facts import Facts
from tests.certify.conftest import RecordedKernels, sabotage, subject

pytestmark = pytest.mark.slow

TRAIN = "smoke_trainer/train.py"
SHORT = Suite("quick", ("figurine",), 600.0, iterations=100)
WHOLE = dataclasses.replace(SUITES["quick"], scenes=("figurine",))
"""With its floor of held-out PSNR."""

NO_GRADIENT = """
_norms = gradient_norms
def gradient_norms(model):
    model.params[{group!r}].grad.zero_()
    return _norms(model)
"""
BROKEN = {
    "training-finishes": (
        TRAIN,
        """
_prepared = prepare
def prepare(config):
    import dataclasses
    return _prepared(dataclasses.replace(config, stop_after=95))
""",
    ),
    "renderer-as-asked": ("smoke_trainer/renderers.py", "TorchRenderer.kind = 'gsplat'"),
    "held-out-views": (  # the photo of a training view, under another name
        TRAIN,
        """
_prepared = prepare
def prepare(config):
    import dataclasses
    run = _prepared(config)
    copied = dataclasses.replace(run.scene.train[0], name='another')
    run.scene = dataclasses.replace(run.scene, test=(copied, *run.scene.test[1:]))
    return run
""",
    ),
    "photos-decoded": (
        "smoke_trainer/data/images.py",
        """
_decoded = decode
def decode(path, size):
    return _decoded(path, size)[[2, 1, 0, *range(3, _decoded(path, size).shape[0])]]
""",
    ),
    "finite-values": (
        TRAIN,
        """
_norms, _calls = gradient_norms, []
def gradient_norms(model):
    _calls.append(1)
    if len(_calls) == 50:
        return {**_norms(model), 'scaling': torch.tensor(math.inf)}
    return _norms(model)
""",
    ),
    **{
        f"gradients-{group.replace('_', '-')}": (TRAIN, NO_GRADIENT.format(group=group))
        for group in REQUIRED_GROUPS
    },
    "parameters-move": (  # the rotations are put back after each step
        "smoke_trainer/model.py",
        """
_adam = make_adam
def make_adam(params, lrs):
    optimizer, engine = _adam(params, lrs)
    kept = []
    optimizer.register_step_pre_hook(lambda *_: kept.append(optimizer.param_groups[5]['params'][0].detach().clone()))
    optimizer.register_step_post_hook(lambda *_: optimizer.param_groups[5]['params'][0].data.copy_(kept.pop()))
    return optimizer, engine
""",
    ),
    "gaussians-reached": (
        TRAIN,
        """
_norms = gradient_norms
def gradient_norms(model):
    for parameter in model.params.values():
        if parameter.grad is not None:
            parameter.grad[: int(0.6 * len(model))] = 0.0
    return _norms(model)
""",
    ),
    "loss-falls": (  # a part of the loss that no parameter changes
        "smoke_trainer/metrics.py",
        """
_loss = photometric_loss
def photometric_loss(*a, **k):
    found = _loss(*a, **k)
    return found._replace(total=found.total + 1.0)
""",
    ),
    "loss-trend": (  # learns for 60 iterations, then the colours go the wrong way
        TRAIN,
        """
_norms, _calls = gradient_norms, []
def gradient_norms(model):
    _calls.append(1)
    norms = _norms(model)
    if len(_calls) > 60:
        for name in ('f_dc', 'opacity'):
            model.params[name].grad.mul_(-1.0)
    return norms
""",
    ),
    "densification-works": (
        "smoke_trainer/densify/strategies.py",
        "DefaultStrategy._grow = lambda self, *a: (0, 0)",
    ),
    "held-out-psnr-rises": (  # the held-out cameras are wrong
        TRAIN,
        """
_drawn = _rendered
def _rendered(run, views):
    for view, rendered, gt, mask in _drawn(run, views):
        off = run.iteration > 0 and view in run.scene.test
        yield view, (rendered.roll(16, 2) if off else rendered), gt, mask
""",
    ),
    "held-out-not-above-training": (  # trains on the held-out views
        TRAIN,
        """
def _next(run):
    return run.scene.test[run.iteration % len(run.scene.test)]
Run.next_view = _next
""",
    ),
    "held-out-near-training": (  # memorises: it draws its training views from their photos, and the others as they are
        TRAIN,
        """
_drawn = _rendered
def _rendered(run, views):
    for view, rendered, gt, mask in _drawn(run, views):
        yield view, (rendered if view in run.scene.test else gt.lerp(rendered, 0.1)), gt, mask
""",
    ),
    "held-out-psnr-holds": (  # what held-out views show gets worse in the last quarter
        TRAIN,
        """
_drawn = _rendered
def _rendered(run, views):
    for view, rendered, gt, mask in _drawn(run, views):
        off = run.iteration == run.config.iterations and view in run.scene.test
        yield view, (rendered.roll(1, 2) if off else rendered), gt, mask
""",
    ),
    "ply-round-trip": (
        "smoke_trainer/ply.py",
        """
_write = write_gaussians
def write_gaussians(path, rows):
    _write(path, {**rows, 'f_dc': rows['f_dc'] + 0.01})
""",
    ),
    "evaluation-memory": (  # all views are drawn first, gradients are recorded, and none is dropped
        TRAIN,
        """
_drawn, _kept = _rendered, []
def _rendered(run, views):
    with torch.enable_grad():
        _kept.extend(_drawn(run, [*run.scene.train, *run.scene.test]))
        yield from _drawn(run, views)
""",
    ),
    "memory-growth": (
        TRAIN,
        """
_record, _kept = Monitor.record, []
def _keep(self, iteration, loss, *rest):
    _kept.append(loss.l1)
    _record(self, iteration, loss, *rest)
Monitor.record = _keep
""",
    ),
    "memory-utilisation": ("smoke_trainer/memory.py", "memory_limit = lambda: int(1.01 * peak_rss())"),
    "time-by-phase": (
        TRAIN,
        """
_record = Monitor.record
def _slow(self, *a):
    import time
    time.sleep(0.05)
    _record(self, *a)
Monitor.record = _slow
""",
    ),
    "throughput-steady": (  # every tenth iteration takes twenty times as long, with no other program on the machine
        TRAIN,
        """
from smoke_trainer.timing import OtherPrograms
OtherPrograms.cores = lambda self, after: 0.0
_norms, _calls, _began = gradient_norms, [], []
def gradient_norms(model):
    import time
    now = time.process_time()
    _calls.append(now)
    usual = now - _calls[-2] if len(_calls) > 1 else 0.0
    while len(_calls) % 10 == 5 and time.process_time() < now + 20 * usual:
        pass
    return _norms(model)
""",
    ),
    "implementations-identified": (
        "smoke_trainer/backends.py",
        """
_made = make_ssim
def make_ssim(choice, device):
    found = _made(choice, device)
    right = found.function.function
    return found._replace(function=Counted(lambda a, b: right(a, b)))
""",
    ),
    "no-cuda-error": (
        "smoke_trainer/process.py",
        "import sys; print('CUDA error: no kernel image is available for execution on the device', file=sys.stderr)",
    ),
    "training-repeats": (
        TRAIN,
        """
def _random(run):
    import random
    return random.SystemRandom().choice(run.scene.train)
Run.next_view = _random
""",
    ),
}


def refusals(out: Path, known: Facts, file: str, lines: str, suite: Suite = SHORT) -> set[str]:
    """The criteria for which a broken trainer is refused."""
    broken = subject(suite, out, stage_files=sabotage(file, lines))
    certificate = certify(broken, known, runner=RecordedKernels())
    failed = [item for run in certificate.scenes for item in run.criteria if item.outcome is Outcome.FAILED]
    assert (certificate.verdict is Verdict.NOT_CERTIFIED) == bool(failed), certificate.reasons
    assert len(certificate.reasons) == len(failed)
    print(*certificate.reasons, sep="\n")
    return {item.code for item in failed}


@pytest.mark.parametrize("code", BROKEN)
def test_refused_for_that_and_nothing_else(code: str, tmp_path: Path, known: Facts) -> None:
    assert refusals(tmp_path, known, *BROKEN[code]) == {code}


def test_quality_below_the_floor(tmp_path: Path, known: Facts) -> None:
    """A camera that is off by a pixel."""
    shifted = BROKEN["held-out-psnr-rises"][1].replace("roll(16, 2)", "roll(1, 2)")
    assert refusals(tmp_path, known, TRAIN, shifted, WHOLE) == {"held-out-quality"}


def test_iterations_that_become_slower(tmp_path: Path, known: Facts) -> None:
    """From the 86th on each takes three times as long, as on a processor that throttles."""
    slower = BROKEN["throughput-steady"][1].replace("len(_calls) % 10 == 5", "len(_calls) > 85")
    assert refusals(
        tmp_path,
        known,
        TRAIN,
        slower.replace("20 * usual", "2 * _usual(_calls)")
        + """
def _usual(calls):
    return (calls[80] - calls[20]) / 60
""",
    ) == {"throughput-steady"}


def test_every_criterion_is_sabotaged(tmp_path: Path, known: Facts) -> None:
    certificate = certify(subject(SHORT, tmp_path), known, runner=RecordedKernels())
    codes = {item.code for run in certificate.scenes for item in run.criteria}
    assert certificate.verdict is Verdict.CERTIFIED, certificate.reasons
    assert codes - {"held-out-quality"} == BROKEN.keys() - {"no-cuda-error"}


def test_an_installed_kernel_that_is_not_the_own_one(tmp_path: Path, known: Facts) -> None:
    """Both lie within their tolerance of float64, on opposite sides: only side by side they are seen to differ."""
    scaled = "def fused_ssim(*images):\n    return _fused(*images) * (1 {})\n"

    def stage_files(folder: Path) -> Path:
        path = sabotage("splatfix/kernels/ssim.py", f"_fused = fused_ssim\n{scaled.format('+ 8e-7')}")(folder)
        installed = path / "fused_ssim"
        installed.mkdir()
        text = f"from splatfix.kernels.ssim import _fused\n\n\n{scaled.format('- 9.5e-6')}"
        (installed / "__init__.py").write_text(text)
        return path

    certificate = certify(subject(NO_SCENES, tmp_path, level=2, stage_files=stage_files), known)
    assert certificate.verdict is Verdict.NOT_CERTIFIED
    (reason,) = certificate.reasons
    assert reason.startswith("kernel ssim: fused_ssim of ")
    assert "differs from splatfix's own kernel on the same input: value 1.0e-05" in reason
    (wrong,) = [item for item in certificate.kernels if item.outcome is Outcome.FAILED]
    assert wrong.implementation == "fused_ssim"
    assert wrong.value_error is not None and wrong.value_error <= wrong.value_allowed
