"""``splatfix fleet report``: verdicts and certificates of a cluster as one picture, from the command line."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.app.test_merge import BASE
from tests.app.test_merge import write as write_certificate
from tests.cli.test_documents import check
from tests.conftest import Splatfix
from tests.report.html.outline import Outline
from tests.report.verdicts import TOO_OLD, verdict, write


def now(node: str, *checks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return verdict(node, *checks, finished=datetime.now(timezone.utc).isoformat(), **changes)


def test_one_picture_of_verdicts_and_certificates(splatfix: Splatfix, tmp_path: Path) -> None:
    """A folder as ``fleet run`` leaves it: 19 certificates and one of a run that was killed."""
    run, out = tmp_path / "run", tmp_path / "out"
    write(run / "verdicts", *(now(f"n{number}") for number in range(3)))
    (run / "verdicts" / "n3.json").write_text('{"kind": "verd')
    (run / "nodes.txt").write_text("n0\nn1\nn2\nn3\n# comment\n\nn4 # its worker was killed\nnode/n5\n")
    environment = {"GPU": "NVIDIA H100 80GB HBM3 (cuda)", "driver": "580.95.05", "torch": "2.11.0+cu130"}
    for number in range(20):
        # what stands behind the facts is not read
        document = {"unfinished": number == 7, **BASE, "environment": environment}
        if number == 7:
            document["verdict"] = "undetermined"
        write_certificate(run / "certificates" / str(number), document)
    words = ("fleet", "report", run, "--out", out, "--nodes", run / "nodes.txt", "--max-age", "1h")
    done = splatfix(*words, "--json")
    document = check(json.loads(done.stdout))
    assert done.returncode == document["exit_code"] == 3, "lost and torn ones leave it open"
    assert document["states"] == {"fail": 0, "warn": 0, "unknown": 0, "ok": 3}
    told = {item["node"]: (item["why"], item["reason"]) for item in document["remarks"]}
    assert told["n3"][0] == "unread" and told["n3"][1].startswith("it is cut off")
    assert told["n4"] == ("lost", "its worker was killed") and told["n5"][0] == "lost" and len(told) == 3
    assert document["certificates"]["verdicts"]["certified"] == 19
    assert [group["code"] for group in document["certificates"]["groups"]] == ["unfinished"]
    assert document["kinds"][0]["certificates"] == {"certified": 19, "undetermined": 1}
    assert json.loads((out / "fleet.json").read_text(encoding="utf-8")) == document
    assert {Path(name).name for name in document["files"]} == {path.name for path in out.iterdir()}
    shown = Outline((out / "fleet.html").read_text(encoding="utf-8"))
    assert {"../run/certificates/7/certificate.json", "#nodes", "#matrix"} <= shown.links

    write(run / "verdicts", now("n1", TOO_OLD), now("n3"))
    done = splatfix(*words)
    assert done.returncode == 1 and "4 nodes: 1 fail, 3 ok" in done.stdout
    assert "ok → fail: driver-too-old: n1" in done.stdout and "new → ok: n3" in done.stdout
    (out / "fleet.json").write_text("{}")
    assert splatfix(*words).returncode == 1 and (out / "previous" / "fleet.json").read_text() == "{}"


def test_what_is_named_wrongly_is_refused_before_anything_is_written(
    splatfix: Splatfix, tmp_path: Path
) -> None:
    folder = write(tmp_path / "verdicts", now("a"))
    (tmp_path / "empty").mkdir()
    other = write_certificate(tmp_path / "other", BASE) / "certificate.json"
    for words, code, exit_code in (
        ((folder, "--nodes", tmp_path / "none.txt"), "cannot-read", 2),
        ((folder, "--max-age", "soon"), "no-span", 2),
        ((folder, "--since", other), "no-fleet-report", 2),
        ((tmp_path / "nowhere",), "cannot-read", 2),
        ((tmp_path / "empty",), "no-verdicts", 3),
    ):
        done = splatfix("fleet", "report", *words, "--out", tmp_path / "out", "--json")
        document = json.loads(done.stdout)
        assert (document["error"]["code"], done.returncode) == (code, exit_code)
    assert not (tmp_path / "out").exists()
