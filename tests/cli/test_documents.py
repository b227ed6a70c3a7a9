"""The contract of ``--json``: every command prints one document, in one envelope, that its published schema describes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main
from msgspec.structs import replace
from referencing import Registry, Resource

from splatfix import __version__
from splatfix.app.certify import exit_code_of, suggested_options
from splatfix.certify import Verdict
from splatfix.certify.baseline import compare
from splatfix.cli import app
from splatfix.core.codec import to_json
from splatfix.report.certificate import CertificateDocument, markdown
from splatfix.report.forms import envelope
from tests.certify.conftest import record_of
from tests.cli.conftest import Document
from tests.conftest import Splatfix
from tests.install.environments import make_environment, write_extension
from tests.machines import facts_of, folder
from tests.plan.test_recipes import checkout_of
from tests.report.test_certificate import ABSENT, certificate
from tools.schemas import COMMANDS, FOLDER, schemas, text_of

STORED = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
REGISTRY: Registry[Any] = Registry().with_resources(
    (name, Resource.from_contents(schema)) for name, schema in STORED.items()
)


def check(document: dict[str, Any]) -> dict[str, Any]:
    """The document, once its schema has been held against it."""
    schema = STORED[f"{document['command'].replace(' ', '-')}.json"]
    jsonschema.Draft202012Validator(schema, registry=REGISTRY).validate(document)
    assert (document["schema_version"], document["splatfix_version"]) == (2, __version__)
    return document


def test_the_stored_schemas_are_what_the_types_say() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    made = {name: text_of(schema) + "\n" for name, schema in schemas().items()}
    assert written == made, "write them anew: python -m tools.schemas"
    for schema in STORED.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_command_with_json_has_a_schema() -> None:
    group = typer.main.get_command(app)
    names = set()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for below, one in getattr(command, "commands", {"": command}).items():
            if any("--json" in option.opts for option in one.params):
                names.add(f"{name} {below}".strip())
    by_option = {"certify dry-run", "certify lanes", "diagnose list", "diagnose explain"}
    assert names | by_option == set(COMMANDS), "an option with a document of its own"


@pytest.mark.parametrize("machine", ["rtx-3090-and-5090", "h200", "rtx-4090-windows-vs2022", "apple-m2-max"])
def test_diagnose(machine: str, document: Document) -> None:
    made = check(document("diagnose", "--facts", folder(machine)))
    failed = any(item["status"] == "fail" for item in made["findings"])
    assert (made["options"] is not None, made["exit_code"]) == (failed, int(failed))
    assert sum(made["summary"].values()) == len(made["findings"])


def test_options_are_asked_for_the_same_environment(document: Document, tmp_path: Path) -> None:
    folder = checkout_of("2dgs", tmp_path)
    made = check(document("diagnose", "--repo", folder, "--python", sys.executable, "--target", "sm_120"))
    words = ["--dry-run", "--why", "--target", "sm_120", "--python", sys.executable]
    assert made["why"]["argv"] == ["splatfix", "install", str(folder), *words]


def test_dockerfile(document: Document, tmp_path: Path) -> None:
    folder = checkout_of("2dgs", tmp_path)
    words = ("dockerfile", "--repo", folder, "--target", "sm_86", "--target", "sm_120")
    printed = check(document(*words))
    assert printed["image"]["lane"]["targets"] == ["sm_86", "sm_120"] and printed["image"]["reasons"]
    assert printed["files"]["Dockerfile"].startswith("# 2D Gaussian Splatting for sm_86, sm_120")
    assert printed["written"] == []
    written = check(document(*words, "--out", folder))
    assert {Path(path).name for path in written["written"]} >= {"Dockerfile", "Dockerfile.dockerignore"}


def test_inspect(document: Document) -> None:
    made = check(document("inspect", sys.executable, "--target", "sm_86"))
    assert (made["files"][0]["verdicts"]["sm_86"]["usable"], made["exit_code"]) == (None, 3)


def test_checks(document: Document) -> None:
    rows = check(document("diagnose", "--list"))["checks"]
    page = check(document("diagnose", "--explain", rows[0]["code"]))["check"]
    assert {name: page[name] for name in rows[0]} == rows[0]


def test_install_and_everything_after_it(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One small C extension through plan, install, journal, cache and revert."""
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "cache"))
    environment = make_environment(tmp_path / "env")
    named = ("--python", environment.python)
    source = write_extension(tmp_path / "source")
    planned = check(document("install", source, *named, "--dry-run"))
    assert (planned["dry_run"], planned["outcome"]) == (True, None) and planned["plan"]["python"]
    why = check(document("install", source, *named, "--dry-run", "--why", "--target", "sm_120"))
    assert why["options"]["targets"] == ["sm_120"] and why["error"] is None
    assert why["plan"]["steps"][0]["subject"] == "tiny_probe"
    installed = check(document("install", source, *named, "--yes"))
    assert (installed["dry_run"], installed["plan"]) == (False, None)
    (item,) = installed["outcome"]["items"]
    assert (item["subject"], item["version"]) == ("tiny_probe", "1.0")
    (entry,) = check(document("revert", "--list", *named))["journal"]
    assert entry["status"] == "done"
    (wheel,) = check(document("cache", "list"))["wheels"]
    assert wheel["wheel"].startswith("tiny_probe-1.0")
    (reverted,) = check(document("revert", *named))["outcomes"]
    assert (reverted["entry"], reverted["dry_run"]) == (entry["id"], False)
    assert check(document("cache", "clear", "--yes"))["removed"] == 1


def test_certify() -> None:
    scenes = certificate().scenes
    earlier = record_of({"heldout": {"psnr": 3.0}})
    compared = compare(scenes, certificate(scenes=(replace(scenes[0], record=earlier),)))
    assert compared is not None
    subject = certificate(kernels=(ABSENT,), comparison=compared)
    assert compared.scenes[0].measures[3].baseline == 3.0
    failed = replace(subject, verdict=Verdict.NOT_CERTIFIED)
    for made, machine in ((subject, "h200"), (failed, "h200"), (failed, "rtx-3090-and-5090")):
        facts = facts_of(machine)
        options = suggested_options(made, facts)
        whole = CertificateDocument(certificate=made, facts=facts, options=options)
        document = check(envelope("certify", exit_code_of(made), json.loads(json.dumps(to_json(whole)))))
        assert bool(document["options"]) is (machine == "rtx-3090-and-5090")
    assert options and options.advice and options.advice.option
    assert options.advice.option.title in markdown(whole)


def test_certify_at_a_level(document: Document, tmp_path: Path) -> None:
    """The first run level, for real."""
    made = check(document("certify", "--level", "1", "--device", "cpu", "--out", tmp_path / "out"))
    assert (made["level"], made["scenes"], made["kernels"]) == (1, [], [])
    assert {"interpreter-broken", "torch-missing"} <= {item["code"] for item in made["diagnosis"]}


def test_monitor_ends_with_the_code_of_the_command(splatfix: Splatfix, tmp_path: Path) -> None:
    words = ("--interval", "0.05", "--out", str(tmp_path / "out"), "--json", sys.executable, "-c")
    done = splatfix("monitor", *words, "import sys; print('its own'); sys.exit(7)")
    made = check(json.loads(done.stdout))
    assert (made["exit_code"], made["command_exit_code"], made["error"]) == (7, 7, None)
    assert (done.returncode, done.stderr) == (7, "its own\n")


def test_this_machine_and_lanes(document: Document) -> None:
    assert check(document("diagnose", "--only", "environment"))["findings"]
    assert check(document("certify", "--container", "list"))["lanes"]
