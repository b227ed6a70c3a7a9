"""Checks of a scene's folder: :func:`judge` runs all of them."""

# each registers its checks, in the order of a report
from splatfix.checks.scene import geometry as _geometry
from splatfix.checks.scene import layout as _layout
from splatfix.checks.scene import photos as _photos
from splatfix.checks.scene.memory import host_bytes
from splatfix.checks.scene.model import SCENE_CHECKS as SCENE_CHECKS  # for the documentation
from splatfix.checks.scene.model import CheckedScene
from splatfix.checks.scene.stacks import stack_verdicts
from splatfix.facts.scene.model import Scene


def judge(scene: Scene) -> CheckedScene:
    """Say what is wrong with a scene, or worth knowing (nothing of what is as it should be), and which trainers take it."""
    findings = [finding for check in SCENE_CHECKS.values() for finding in check.function(scene, check)]
    return CheckedScene(scene, tuple(findings), stack_verdicts(scene), host_bytes(scene))
