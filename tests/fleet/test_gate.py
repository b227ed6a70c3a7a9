"""The verdict of one node, told by each caller's convention; what is kept between two of them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from splatfix.app.gate import GateRequest, gate
from splatfix.core.codec import to_json
from splatfix.core.forked import in_copy
from splatfix.core.lock import Lock
from splatfix.core.runner import Completed
from splatfix.fleet import slurm
from splatfix.fleet.callers import Caller, exit_code_for, line_for
from splatfix.fleet.history import History, next_of
from splatfix.fleet.policy import GatePolicy
from splatfix.fleet.verdict import (
    Action,
    Alike,
    CheckVerdict,
    NodeVerdict,
    Policy,
    State,
    file_of,
    reason_of,
    state_of,
    write_verdict,
)
from tests.conftest import ROOT, Splatfix
from tests.fleet.slurm_cluster import content, silent
from tests.machines import facts_of, folder

MISMATCH = CheckVerdict("driver-library-mismatch", State.FAIL, Action.DRAIN, "Upgraded | without a reboot.")
WARNING = CheckVerdict("gpu-xid", State.WARN, Action.WARN, "Xid 79.")
UNKNOWN = CheckVerdict("cuda-does-not-start", State.UNKNOWN, Action.NONE, "It gave no answer.")
FINE = CheckVerdict("disk-full", State.OK, Action.NONE, "Room.")


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test's gate of this node, nor that of another checkout on this machine, holds the lock."""
    monkeypatch.setattr("splatfix.app.gate._LOCK_FOLDERS", (str(tmp_path),))


def verdict_of(
    *checks: CheckVerdict, node: str = "n1", drain: bool | None = None, machine: str = "m"
) -> NodeVerdict:
    state = state_of(checks)
    times = ("2026-11-25T10:00:00.000+00:00", "2026-11-25T10:00:00.250+00:00")
    drained = state is State.FAIL if drain is None else drain
    reason = reason_of(checks, state) or "driver-library-mismatch: as before"
    policy = Policy("default", "0" * 12)
    return NodeVerdict(
        node, machine, *times, "0.1.0", policy, state, drained, reason, checks, Alike(("NVIDIA H200",))
    )


@pytest.mark.parametrize(
    ("checks", "drain", "codes"),
    [
        # None, slurm, kubernetes, npd, nagios, prometheus, gcm
        ((FINE,), None, (0, 0, 0, 0, 0, 0, 0)),
        ((FINE, WARNING, UNKNOWN), None, (0, 0, 0, 0, 1, 0, 1)),
        ((FINE, UNKNOWN), None, (3, 0, 0, 2, 3, 0, 3)),
        ((FINE, MISMATCH, UNKNOWN), None, (1, 1, 1, 1, 2, 0, 2)),
        ((MISMATCH,), False, (0, 0, 0, 0, 2, 0, 2)),
        ((FINE,), True, (1, 1, 1, 1, 0, 0, 0)),
        ((UNKNOWN,), True, (1, 1, 1, 1, 3, 0, 3)),
    ],
)
def test_exit_codes_of_every_caller(
    checks: tuple[CheckVerdict, ...], drain: bool | None, codes: tuple[int, ...]
) -> None:
    verdict = verdict_of(*checks, drain=drain)
    assert tuple(exit_code_for(caller, verdict) for caller in (None, *Caller)) == codes
    for caller in {None, *Caller} - {Caller.prometheus}:
        line = line_for(caller, verdict)
        assert line.count("\n") == 1 and line.endswith("\n")
        if drain is not False and MISMATCH in checks:
            assert "driver-library-mismatch" in line
    assert len(line_for(Caller.npd, verdict)) <= 81


def test_forms_that_programs_parse() -> None:
    verdict = verdict_of(FINE, UNKNOWN, MISMATCH)
    text, _, performance = line_for(Caller.nagios, verdict).partition(" | ")
    assert text.startswith("SPLATFIX CRITICAL - fail: driver-library-mismatch") and "|" not in text
    for item in performance.split():
        assert re.fullmatch(r"[a-z]+=[\d.]+s?(;\d*){3}", item), item
    assert "failed=1;;1;0" in performance and "time=0.250s" in performance
    samples = [
        line for line in line_for(Caller.prometheus, verdict).splitlines() if not line.startswith("# ")
    ]
    assert all(re.fullmatch(r'[a-z_]+(\{[a-z]+="[\w-]+"\})? \d+', line) for line in samples), samples
    assert 'splatfix_gate_state{state="fail"} 1' in samples and "splatfix_gate_drain 1" in samples
    assert 'splatfix_gate_check_failed{check="driver-library-mismatch"} 1' in samples
    assert not any("cuda-does-not-start" in line for line in samples), "what is not known has no sample"


def test_nodes_are_drained_and_returned_by_count() -> None:
    """f: failing, u: unknown, o: ok; a capital where the node is drained after it."""
    states = {"f": State.FAIL, "u": State.UNKNOWN, "o": State.OK, "w": State.WARN}
    policy = GatePolicy(bad=2, good=2)
    for course in ("fFOo", "fofFFOFOw", "fuFUOUo", "uuuuu", "foofo"):
        history: History | None = None
        for sign in course:
            history = next_of(history, states[sign.lower()], "why", "now", policy)
            assert history.drained == (sign.isupper()), (course, sign, history)
            assert bool(history.reason) >= history.drained
    once = next_of(None, State.FAIL, "why", "1", GatePolicy(bad=1))
    assert once.drained and next_of(once, State.OK, "", "2", GatePolicy(good=1)).reason == ""
    assert next_of(once, State.FAIL, "why", "2", policy).previous.since == "1"


@pytest.mark.parametrize(
    ("machine", "state", "code"),
    [
        ("h200", "ok", ""),
        ("driver-without-reboot", "fail", "driver-library-mismatch"),
        ("card-without-driver", "fail", "gpu-without-driver"),
        ("t4-container-locked-down", "fail", "container-device-closed"),
    ],
)
def test_machines_by_the_default_policy(machine: str, state: str, code: str) -> None:
    made = gate(GateRequest(caller="slurm", node="n1", facts_file=folder(machine), timeout=60))
    assert made.verdict.state.value == state and made.verdict.reason.partition(":")[0] == code
    assert (made.exit_code, made.verdict.drain) == ((1, True) if state == "fail" else (0, False))
    assert made.verdict.alike.driver == getattr(facts_of(machine).machine.driver.value, "version", None)


def test_what_is_unknown_drains_nothing(tmp_path: Path) -> None:
    facts = tmp_path / "silent.json"
    facts.write_text(json.dumps(silent(facts_of("h200"))))
    for _ in range(5):
        made = gate(GateRequest(caller="slurm", node="n1", facts_file=facts, state=tmp_path, timeout=60))
    assert (made.verdict.state, made.verdict.drain, made.exit_code) == (State.UNKNOWN, False, 0)
    assert made.verdict.previous is not None and made.verdict.previous.count == 4


def test_a_policy_decides(tmp_path: Path, splatfix: Splatfix) -> None:
    policy = tmp_path / "policy.toml"
    broken = folder("driver-without-reboot")
    for text, code, words in (
        ('[checks]\nwarn = ["driver"]', 0, "warn: driver-library-mismatch"),
        ('[checks]\ndrain = ["driver"]', 1, "fail: driver-library-mismatch"),
        ('[checks]\nwarn = ["disk-full"]', 0, "ok: "),
        ('gpus = 2\n[checks]\nwarn = ["disk-full"]', 1, "gpu-count: 0 of 2"),
    ):
        policy.write_text(text)
        done = splatfix("gate", "--facts", broken, "--policy", policy)
        assert done.returncode == code and words in done.stdout, (text, done)
    for text, words in (
        ("bad = 0", "bad and good"),
        ("drian = 3", "drian"),
        ("[checks", "no policy"),
        ('[checks]\nwarn = ["driver"]\ndrain = ["driver"]', "both drain and warn"),
        ('[checks]\nwarn = ["no-such-check"]', "no-such-check"),
        ('[checks]\nwarn = ["glm-missing"]', "glm-missing"),
        ("", "it names no checks"),
    ):
        policy.write_text(text)
        done = splatfix("gate", "--facts", broken, "--policy", policy)
        assert done.returncode == 2 and words in " ".join(done.stderr.split()), (text, done)
        # a slip in the policy must not drain a whole cluster from its prologs
        done = splatfix("gate", "--facts", broken, "--policy", policy, "--for", "slurm")
        assert done.returncode == 0 and done.stdout.startswith("unknown: bad-policy"), (text, done)


@pytest.mark.parametrize(
    ("caller", "code"),
    [("slurm", 0), ("kubernetes", 0), ("npd", 2), ("nagios", 3), ("prometheus", 0), ("gcm", 3)],
)
def test_a_slip_in_the_call_is_unknown_to_who_acts_on_it(caller: str, code: int, splatfix: Splatfix) -> None:
    """Of a prolog, 1 and 2 would drain every node."""
    for slip in (("--polcy", "x"), ("--timeout", "0"), ("--facts",), ("more",)):
        for words in ((*slip, "--for", caller), ("--for", caller, *slip)):
            if slip == ("--facts",) and words[0] == "--facts":
                continue  # it would take --for for its file
            done = splatfix("gate", *words)
            assert done.returncode == code and "wrong-usage" in done.stderr, (words, done)
    assert splatfix("gate", "--timeout", "0").returncode == 2


@pytest.mark.parametrize("to", [">/dev/full", ">&-"])
def test_a_line_that_nobody_takes_changes_no_verdict(to: str) -> None:
    gate_of = f'exec "$0" -m splatfix gate --for slurm --facts "$1" --timeout 60 {to}'
    for machine, code in (("h200", 0), ("driver-without-reboot", 1)):
        argv = ["sh", "-c", gate_of, sys.executable, folder(machine)]
        done = subprocess.run(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == code and "error" in done.stderr, done


def test_without_another_process_it_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    made = gate(GateRequest(caller="slurm", node="n1", out=tmp_path / "out"))
    assert (made.exit_code, made.verdict.checks[0].code) == (0, "gate-broke")
    assert not (tmp_path / "out").exists()


def test_a_second_gate_of_the_same_node_does_not_run(tmp_path: Path) -> None:
    request = GateRequest(
        caller="gcm",
        node="n 1/2",
        state=tmp_path,
        out=tmp_path / "out",
        facts_file=folder("h200"),
        timeout=60,
    )
    assert gate(request).exit_code == 0
    (file,) = tmp_path.glob("*.lock")
    written = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    assert {path.name for path in written} == {"n%201%2F2.json"} and len(written) == 2
    lock = Lock(file)
    second = gate(request)
    lock.release()
    assert second.exit_code == 3 and second.verdict.checks[0].code == "gate-locked"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == written
    assert gate(request).exit_code == 0


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build a hanging driver with")
def test_a_driver_that_hangs_costs_the_time_limit(tmp_path: Path) -> None:
    source = tmp_path / "hang.c"
    source.write_text("#include <unistd.h>\nint nvmlInitWithFlags(void){for(;;)sleep(1000);}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    argv = [sys.executable, "-m", "splatfix", "gate", "--for", "npd", "--timeout", "2", "--node", "n1"]
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (
        2,
        "unknown: gate-timeout: No answer within 2 s: the driver or a disk hangs.\n",
    )
    mark = f"LD_LIBRARY_PATH={tmp_path}".encode()
    for _ in range(300):  # what ends the children looks for them twice a second
        left = [item for item in Path("/proc").glob("[0-9]*/environ") if mark in content(item)]
        if not left:
            break
        time.sleep(0.1)
    assert not left, "no child outlives the gate"


def test_what_breaks_in_the_copy_is_told() -> None:
    assert in_copy(lambda: "a" * 300_000, 60) == "a" * 300_000
    for work in (lambda: str(1 // 0), lambda: os._exit(0), lambda: os.kill(os.getpid(), 9)):
        with pytest.raises(ChildProcessError):
            in_copy(work, 60)  # type: ignore[arg-type]


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can become somebody else")
def test_as_nobody_with_a_home_that_is_not_there(tmp_path: Path) -> None:
    """Also without torch: the interpreter is the system's, which has none."""
    python = shutil.which(
        f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin"
    )
    packages = Path(pytest.__file__).parents[1]
    if python is None:
        pytest.skip("no interpreter of this version that everybody may run")
    env = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{packages}"}
    argv = [python, "-m", "splatfix", "gate", "--for", "gcm", "--out", "/proc/none", "--state", "/proc/none"]
    done = subprocess.run(
        argv,
        env=env,
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1) and re.match("ok|warn", done.stdout), done
    assert "cannot be written" in " ".join(done.stderr.split()) or "not" in done.stderr


NODE = "NodeName=n1 Arch=x86_64 State={} ThreadsPerCore=1 Reason={} [root@2026-11-25T10:00:00]\n"


@pytest.mark.parametrize(
    ("shown", "verdict", "update"),
    [
        (NODE.format("IDLE", ""), verdict_of(FINE), None),
        (NODE.format("IDLE", ""), verdict_of(UNKNOWN), None),
        (NODE.format("MIXED", ""), verdict_of(MISMATCH, drain=False), None),
        (
            NODE.format("IDLE", ""),
            verdict_of(MISMATCH),
            ["State=DRAIN", "Reason=splatfix: driver-library-mismatch: Upg"],
        ),
        (NODE.format("IDLE+DRAIN", "splatfix: driver-x"), verdict_of(MISMATCH), None),
        (NODE.format("IDLE+DRAIN", "splatfix: driver-x"), verdict_of(FINE, drain=True), None),
        (NODE.format("IDLE+DRAIN", "splatfix: driver-x"), verdict_of(FINE), ["State=RESUME"]),
        (NODE.format("IDLE+DRAIN", "splatfix: driver-x"), verdict_of(MISMATCH, drain=False), None),
        (NODE.format("IDLE+DRAIN", "splatfix: driver-x"), verdict_of(UNKNOWN), None),
        (NODE.format("MIXED+DRAIN", "new fans"), verdict_of(FINE), None),
        (NODE.format("IDLE+DRAIN", "new fans"), verdict_of(MISMATCH), None),
    ],
)
def test_slurm_is_told_only_what_it_does_not_know(
    shown: str, verdict: NodeVerdict, update: list[str] | None
) -> None:
    calls: list[list[str]] = []

    class Scontrol:
        def run(self, argv: list[str], **_: object) -> Completed:
            calls.append(list(argv))
            return Completed(tuple(argv), 0, shown if "show" in argv else "")

    assert slurm.apply(verdict, Scontrol(), 5) == ""  # type: ignore[arg-type]
    changes = [call[3:] for call in calls if "update" in call]
    assert len(changes) == bool(update)
    for made, wanted in zip(changes[0] if changes else (), update or (), strict=True):
        assert made.startswith(wanted)


def test_a_controller_that_is_away_is_no_failure() -> None:
    class Away:
        def run(self, argv: list[str], **_: object) -> Completed:
            return Completed(
                tuple(argv), 1, "", "slurm_load_node error: Unable to contact slurm controller\n"
            )

    assert "Unable to contact" in slurm.apply(verdict_of(MISMATCH), Away(), 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "node",
    ["n1", "../../etc/passwd", ".hidden", "rack 3/blade", "ü" * 200, "nul\0", "a" * 300, "\ud800", "%2E"],
)
def test_odd_names_stay_in_their_folder_and_apart(node: str, tmp_path: Path) -> None:
    made = gate(GateRequest(node=node, facts_file=folder("h200"), state=tmp_path / "state", timeout=60))
    assert made.exit_code == 0 and len(list((tmp_path / "state").glob("*.json"))) == 1
    path = write_verdict(tmp_path, verdict_of(FINE, node=node))
    assert path.parent == tmp_path and path.is_file() and not path.name.startswith(".")
    assert json.loads(path.read_bytes())["node"] == node
    other = file_of(tmp_path, verdict_of(FINE, node=node + "x"))
    assert other != path


def test_a_second_machine_of_the_same_name_takes_nothing_away(tmp_path: Path) -> None:
    first = write_verdict(tmp_path, verdict_of(FINE, machine="first"))
    second = write_verdict(tmp_path, verdict_of(MISMATCH, machine="second"))
    assert (first.name, second.name) == ("n1.json", "n1-second.json")
    assert write_verdict(tmp_path, verdict_of(FINE, machine="first")) == first
    first.write_text("torn {")
    assert write_verdict(tmp_path, verdict_of(FINE, machine="first")) == first


def test_five_hundred_nodes_write_at_once(tmp_path: Path) -> None:
    """Whoever reads meanwhile finds whole documents only."""
    writers = []
    for number in range(500):
        copy = os.fork()
        if copy == 0:
            try:
                for _ in range(2):
                    write_verdict(tmp_path, verdict_of(*[FINE] * 20, node=f"n{number}"))
                os._exit(0)
            finally:
                os._exit(1)
        writers.append(copy)
    ended: dict[int, int] = {}
    while len(ended) < len(writers):
        for path in tmp_path.glob("*.json"):
            assert json.loads(path.read_bytes())["kind"] == "verdict"
        for copy in writers:
            if copy not in ended and (status := os.waitpid(copy, os.WNOHANG)) != (0, 0):
                ended[copy] = status[1]
    assert not any(ended.values()) and len(list(tmp_path.glob("*.json"))) == 500
    assert len(list(tmp_path.iterdir())) == 500, "nothing temporary stays"


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk(tmp_path: Path) -> None:
    """The verdict is told all the same; without a count a failure drains at once, and nothing torn is left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (disk / "state").mkdir()
        (disk / "filler").write_bytes(b"x" * 8192)
        with (disk / "filler").open("ab") as filler, pytest.raises(OSError):
            while True:
                os.write(filler.fileno(), b"x" * 4096)
        broken = GateRequest(
            caller="slurm",
            node="n1",
            state=disk / "state",
            out=disk / "out",
            facts_file=folder("driver-without-reboot"),
            timeout=60,
        )
        made = gate(broken)
        assert made.exit_code == 1 and made.verdict.drain
        assert not [path for path in disk.rglob("*") if path.is_file() and path.name.endswith(".json")]
        assert not list(disk.rglob(".splatfix-*"))
        fine = GateRequest(
            caller="slurm", node="n1", state=disk / "state", facts_file=folder("h200"), timeout=60
        )
        assert gate(fine).exit_code == 0
        (disk / "filler").unlink()
        assert gate(broken).exit_code == 0, "one of two that the policy wants"
        assert gate(broken).exit_code == 1
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can freeze a disk")
@pytest.mark.slow
def test_a_shared_disk_that_hangs(tmp_path: Path) -> None:
    """Whoever writes to a frozen disk waits in the kernel, where no signal reaches it: that is left behind."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(8 << 20)
    for command in (
        ["mkfs.ext4", "-q", image],
        ["mount", "-o", "loop", image, disk],
        ["fsfreeze", "-f", disk],
    ):
        if shutil.which(command[0]) is None or subprocess.run(command, check=False).returncode:
            subprocess.run(["umount", disk], stderr=subprocess.DEVNULL, check=False)
            pytest.skip(f"{command[0]} is not possible here")
    argv = [sys.executable, "-m", "splatfix", "gate", "--for", "gcm", "--node", "n1", "--timeout", "20"]
    frozen = ["--facts", folder("driver-without-reboot"), "--out", disk]
    # --facts takes longer here than the machine itself; what is left of the limit is the disk's
    try:
        done = subprocess.run(
            [*argv, *frozen], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        subprocess.run(["fsfreeze", "-u", disk], check=True)
        for _ in range(100):  # what was left behind ends once the disk answers
            if subprocess.run(["umount", disk], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.1)
    assert not disk.is_mount()
    assert done.returncode == 2 and done.stdout.startswith("fail: driver-library-mismatch"), done
    assert "takes no file within" in " ".join(done.stderr.split())


def test_it_takes_little_memory() -> None:
    """The parent and its copy each; the limit is that of the issue. No torch and no rich is loaded."""
    argv = [sys.executable, "-m", "splatfix", "gate", "--for", "slurm", "--timeout", "60"]
    # a child counts the memory of whoever started it: that is a small one, and not pytest
    measure = (
        "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:], stdout=2).returncode; "
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measure, *argv], cwd=ROOT, capture_output=True, text=True, check=True
    )
    code, peak = map(int, done.stdout.split())
    assert code in (0, 1) and 10 << 10 < peak < 60 << 10, done


def test_no_secret_and_nothing_personal_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/annabel")
    document = json.loads(json.dumps(to_json(facts_of("h200"))))
    libraries = [
        "/home/annabel/hf_abcdefghijklmnopqrstuvwxyz012345/stubs/libcuda.so.1",
        "/usr/lib/libcuda.so.1",
    ]
    document["machine"]["libcuda"] = {
        "value": libraries,
        "found_via": "ldconfig",
        "error": "",
        "absent": False,
    }
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(document))
    made = gate(GateRequest(node="n1", facts_file=facts, out=tmp_path / "out", timeout=60))
    text = (tmp_path / "out" / "n1.json").read_text()
    assert "stub-libcuda-loaded" in text and made.verdict.state is State.FAIL
    assert "annabel" not in text and "hf_abc" not in text and made.verdict.redacted
