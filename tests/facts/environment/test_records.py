"""Which installed files are not as their RECORD has them."""

import base64
import hashlib
from pathlib import Path

from splatfix.facts.environment.packages import altered_files
from splatfix.facts.system.live import System
from splatfix.facts.system.playback import PlaybackSystem, RawMachine
from splatfix.facts.system.recording import RecordingSystem
from splatfix.model import AlteredFile, Distribution, SplatPackage
from tests.files import put

LISTED = {
    "torch/utils/cpp_extension.py": b"def check():\n    raise RuntimeError\n",
    "torch/lib/libtorch_cpu.so": b"\x7fELF" + bytes(60),
    "torch/optim/adam.py": b"beta = 0.9\n",
    "torch/optim/sgd.py": b"momentum = 0.0\n",
    "torch/onnx/symbolic.py": b"not looked at\n",
}


def installed(site: Path) -> Distribution:
    """A torch of these files, with its RECORD."""
    put(site, LISTED)
    record = ""
    for path, content in LISTED.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(content)}\n"
    put(site, {"torch-2.13.0.dist-info/RECORD": record})
    return Distribution("torch", "2.13.0", str(site))


def test_files_are_compared_with_their_record(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    torch = installed(site)
    assert list(altered_files(System(), [torch], ())) == []
    others = {"utils/cpp_extension.py": "def check():\n    pass\n", "optim/adam.py": "beta = 0.1\n"}
    put(site / "torch", {**others, "lib/libtorch_cpu.so": b"\x7fELF", "onnx/symbolic.py": ""})
    (site / "torch/optim/sgd.py").unlink()
    system = RecordingSystem(System(env={}), tmp_path / "recorded")
    altered = tuple(altered_files(system, [torch], ()))
    assert {item.path: item.found for item in altered} == {
        "torch/utils/cpp_extension.py": "22 bytes, not 36",
        "torch/optim/adam.py": "another content",
        "torch/optim/sgd.py": "not there",
        "torch/lib/libtorch_cpu.so": "4 bytes, not 64",
    }
    system.write("python", redact=False)
    recorded = PlaybackSystem(RawMachine.read(tmp_path / "recorded"))
    assert tuple(altered_files(recorded, [torch], ())) == altered


def test_editable_installs_and_other_packages_are_passed_over(tmp_path: Path) -> None:
    torch = installed(tmp_path)
    (tmp_path / "torch/optim/adam.py").unlink()
    location = str(tmp_path)
    editable = Distribution("torch", "2.13.0", location, editable=True)
    assert not list(altered_files(System(), [editable], ()))
    (tmp_path / "torch-2.13.0.dist-info").rename(tmp_path / "simple_knn-1.dist-info")
    knn = Distribution("simple_knn", "1", location)
    # one has no RECORD, the other is no splatting package
    assert not list(altered_files(System(), [torch, knn], ()))
    package = SplatPackage("simple_knn", location, ("simple_knn",))
    (item,) = altered_files(System(), [knn], [package])
    assert item == AlteredFile("simple_knn", "1", "torch/optim/adam.py", "not there")
