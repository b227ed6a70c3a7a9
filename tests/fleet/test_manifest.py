"""``splatfix fleet manifest``: valid for Kubernetes, and as node-problem-detector takes it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from splatfix.app.fleet_manifest import manifest
from splatfix.core.errors import SplatfixError
from splatfix.fleet.callers import Caller, line_for
from splatfix.fleet.verdict import Action, CheckVerdict, State
from tests.conftest import Splatfix
from tests.fleet.test_gate import verdict_of
from tests.machines import folder

IMAGE = "localhost/splatfix-gate:test"
KINDS = ("job", "daemonset", "init")


def parsed(text: str) -> Any:
    return pytest.importorskip("yaml").safe_load(text)


def made(kind: str, **more: Any) -> str:
    text: str = manifest(kind, IMAGE, **more).data()["manifest"]
    return text


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_same_gate_in_it(kind: str) -> None:
    document = parsed(made(kind, claim="verdicts"))
    assert document["kind"] == ("DaemonSet" if kind == "daemonset" else "Job")
    pod = document["spec"]["template"]["spec"]
    (gate,) = pod["initContainers" if kind == "init" else "containers"]
    command = (gate.get("readinessProbe", {}).get("exec") or gate)["command"]
    assert command[:2] == ["sh", "-c"] and "splatfix gate --for=kubernetes" in command[2]
    assert gate["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    assert {"name": "verdicts", "persistentVolumeClaim": {"claimName": "verdicts"}} in pod["volumes"]
    mounted = {mount["name"] for mount in gate["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    asked = gate["resources"]["limits"].get("nvidia.com/gpu")
    assert asked == (None if kind == "daemonset" else 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{}, {"gpus": 4, "claim": "verdicts"}])
def test_kubernetes_own_schemas_take_them(kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    python = os.environ.get("SPLATFIX_RAY_PYTHON")
    if not python:
        pytest.skip("NOT HELD AGAINST KUBERNETES' SCHEMAS: make ray")
    file = tmp_path / "manifest.yaml"
    validate = [str(Path(python).with_name("kubernetes-validate")), "--strict", "-k"]
    for version in ("1.29.0", "1.37.0"):
        file.write_text(made(kind, **more))
        assert subprocess.run([*validate, version, file], capture_output=True).returncode == 0
        file.write_text(
            made(kind, **more).replace("backoffLimit", "backofLimit").replace("selector:", "selektor:")
        )
        assert subprocess.run([*validate, version, file], capture_output=True).returncode != 0


def test_the_plugin_of_node_problem_detector_is_as_it_validates() -> None:
    """What its Validate and ApplyConfiguration refuse (pkg/custompluginmonitor/types/config.go)."""
    config = json.loads(manifest("npd").data()["manifest"])
    assert config["plugin"] == "custom" and config["source"]
    seconds = {
        name: int(config["pluginConfig"][name].removesuffix("s")) for name in ("timeout", "invoke_interval")
    }
    (rule,) = config["rules"]
    assert int(rule["timeout"].removesuffix("s")) <= seconds["timeout"] <= seconds["invoke_interval"]
    assert rule["type"] == "permanent" and rule["condition"] in {
        item["type"] for item in config["conditions"]
    }
    assert rule["args"][:3] == ["gate", "--for", "npd"] and Path(rule["path"]).is_absolute()


def test_its_output_is_as_node_problem_detector_takes_it(splatfix: Splatfix, tmp_path: Path) -> None:
    """Of its standard output it keeps max_output_length bytes; 0 and 1 are states, all else is none (plugin.go)."""
    config = json.loads(manifest("npd").data()["manifest"])
    *args, state = config["rules"][0]["args"]
    assert args[-1] == "--state" and Path(state).is_absolute()
    for machine, codes in (("h200", [0, 0]), ("driver-without-reboot", [0, 1])):
        for code in codes:
            done = splatfix(*args, tmp_path, "--facts", folder(machine), "--timeout", "60")
            assert done.returncode == code, done
            assert 0 < len(done.stdout.strip().encode()) <= config["pluginConfig"]["max_output_length"]
    accented = CheckVerdict("disk-full", State.FAIL, Action.WARN, "é" * 90)
    line = line_for(Caller.npd, verdict_of(accented)).strip()
    assert 77 < len(line.encode()) <= 80 and line.endswith("é...")


@pytest.mark.parametrize("image", ["", 'x"\nkind: Pod', "$(x)", "a b", "-x", "x{{ y }}"])
def test_names_that_are_none_are_refused(image: str) -> None:
    with pytest.raises(SplatfixError):
        manifest("job", image)
    with pytest.raises(SplatfixError):
        manifest("job", IMAGE, claim=image or "a/b c")


def test_it_is_printed_as_it_is(splatfix: Splatfix) -> None:
    done = splatfix("fleet", "manifest", "daemonset", "--image", IMAGE)
    assert done.returncode == 0 and done.stdout == made("daemonset")
