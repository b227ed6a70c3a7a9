"""``python -m tools.cuda_kernels [--peers FOLDER]``: compiles the CUDA kernels for every architecture and writes
tests/records/cuda_kernels.json: what each takes, its machine code counted (tools/sass.py), and times estimated from both
(tools/kernel_estimates.py). `--peers`: cubins of Inria's and fused-ssim's kernels (NAME-sm_90.cubin), counted in the same way;
only the figures are kept, and without them those of the last time.

Registers, spills, shared memory and stack are what ptxas says; occupancy follows from them and the limits of a
multiprocessor (CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability", and for 11.0, which it
lacks, NVIDIA/cccl's libcudacxx/include/cuda/__device/arch_traits.h, which agrees from 8.0 on; registers are given to
a warp in units of 256, shared memory to a block in units of 128 bytes with 1 KB of the system's own from 8.0 on). It is
what the multiprocessor could hold, not what it ran.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splatfix.core.toml import table_beside
from splatfix.kernels.nvrtc import Compiler, compile_kernels, find_compiler
from tools.kernel_estimates import ASSUMPTIONS, estimates
from tools.sass import Kernel, read_kernels, read_resources

RECORD = Path(__file__).resolve().parent.parent / "tests" / "records" / "cuda_kernels.json"
_TABLES = table_beside(__file__)
ARCHITECTURES = tuple(map(int, _TABLES["multiprocessors"]))
MODULES: dict[str, tuple[str, dict[str, object]]] = {
    name: (row["file"], {option: value for option, value in row.items() if option != "file"})
    for name, row in _TABLES["modules"].items()
}
_PLAIN = re.compile(r"\d([a-z]\w*?CUDA)")  # of a mangled name
_ENTRY = re.compile(
    r"Function properties for (?P<name>\w+)\n.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\n.*?Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?"
)


def occupancy(architecture: int, registers: int, shared: int, threads: int) -> float:
    """Share of a multiprocessor's threads that these blocks can fill, 0 to 1."""
    most_threads, most_blocks, most_shared = map(int, _TABLES["multiprocessors"][str(architecture)])
    warps = threads // 32
    by_registers = 65536 // (-(-registers * 32 // 256) * 256 * warps)
    taken = -(-shared // 128) * 128
    if architecture >= 80:  # the system's own
        taken += 1024
    blocks = min(most_threads // threads, by_registers, most_blocks)
    if taken:
        blocks = min(blocks, most_shared * 1024 // taken)
    return round(blocks * threads / most_threads, 3)


def measure(module: str, architecture: int, compiler: Compiler) -> tuple[dict[str, dict[str, Any]], bytes]:
    """What ptxas says of every kernel of a module, by name, and the module's cubin.

    Raises:
        ValueError: with the compiler's warnings.
    """
    file, defines = MODULES[module]
    compiled = compile_kernels(file, defines, architecture, compiler, extra=("--ptxas-options=-v",))
    if "warning" in compiled.log:
        raise ValueError(compiled.log)
    kernels = {}
    for entry in _ENTRY.finditer(compiled.log):
        registers, shared = int(entry["registers"]), int(entry["shared"] or 0)
        threads = _TABLES["threads"].get(entry["name"], 256)
        kernels[entry["name"]] = {
            "registers": registers,
            "spilled": int(entry["stores"]) + int(entry["loads"]),
            "stack": int(entry["stack"]),
            "shared": shared,
            "threads": threads,
            "occupancy": occupancy(architecture, registers, shared, threads),
        }
    return dict(sorted(kernels.items())), compiled.code


def count(kernel: Kernel) -> dict[str, Any]:
    """Of its machine code: instructions, double-precision ones, atomic additions, and its loops that hold no other."""
    return {
        "instructions": len(kernel.instructions),
        "doubles": kernel.doubles(),
        "atomics": kernel.atomics(),
        "loops": [loop._asdict() for loop in kernel.loops()],
    }


def examine(module: str, architecture: int, compiler: Compiler) -> tuple[dict[str, dict[str, Any]], int]:
    """What each kernel of a module takes and its machine code, by name; and the module's bytes."""
    taken, code = measure(module, architecture, compiler)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernels.cubin")
        cubin.write_bytes(code)
        kernels = read_kernels(cubin)
    return {name: {**taken[name], **count(kernels[name])} for name in taken}, len(code)


def peers(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Of the kernels of others, by architecture and file."""
    result: dict[str, dict[str, dict[str, Any]]] = {}
    for cubin in sorted(folder.glob("*-sm_*.cubin")):
        file, architecture = cubin.stem.rsplit("-", 1)
        kernels, resources = {}, read_resources(cubin)
        for name, kernel in read_kernels(cubin).items():
            registers, shared = resources[name]
            held = occupancy(int(architecture[3:]), registers, shared, 256)
            taken = {"registers": registers, "shared": shared, "occupancy": held}
            kernels[_PLAIN.findall(name)[0]] = {**taken, **count(kernel)}
        result.setdefault(architecture, {})[file] = kernels
    return result


def grown(measured: dict[str, dict[str, Any]], recorded: dict[str, dict[str, Any]]) -> list[str]:
    """What kernels take more of than is recorded, and kernels that only one side has, in words."""
    problems = [f"{name}: only one side has it" for name in sorted(measured.keys() ^ recorded.keys())]
    for kernel in sorted(measured.keys() & recorded.keys()):
        for resource in ("registers", "spilled", "stack", "shared"):
            now, before = measured[kernel][resource], recorded[kernel][resource]
            if now > before:
                problems.append(f"{kernel}: {resource} {now}, recorded {before}")
    return problems


def _lines(value: Any, depth: int = 0) -> str:
    """As JSON, what is of one kernel in a line."""
    if depth == 4 or not isinstance(value, dict):
        return json.dumps(value)
    indent = " " * (depth + 1)
    inside = ",\n".join(
        f"{indent}{json.dumps(key)}: {_lines(item, depth + 1)}" for key, item in value.items()
    )
    return f"{{\n{inside}\n{' ' * depth}}}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, name the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, metavar="FOLDER")
    asked = parser.parse_args(arguments)
    compiler, before = find_compiler(), json.loads(RECORD.read_text())
    kernels: dict[str, Any] = {}
    sizes: dict[str, dict[str, int]] = {}
    for number in ARCHITECTURES:
        examined = {module: examine(module, number, compiler) for module in MODULES}
        kernels[f"sm_{number}"] = {module: figures for module, (figures, _) in examined.items()}
        sizes[f"sm_{number}"] = {module: length for module, (_, length) in examined.items()}
    theirs = before["peers"]
    if asked.peers:
        theirs = {**ASSUMPTIONS["peers"], "architectures": peers(asked.peers)}
    document = {
        "schema_version": 2,
        "made_by": "python -m tools.cuda_kernels",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "nvrtc": ".".join(map(str, compiler.version)),
        "architectures": kernels,
        "bytes": sizes,
        "before": before["before"],
        "peers": theirs,
        "assumptions": {name: part for name, part in ASSUMPTIONS.items() if name != "peers"},
        "estimated_milliseconds": estimates(kernels, theirs["architectures"]),
    }
    RECORD.write_text(_lines(document) + "\n")
    print(RECORD)
    return 0


if __name__ == "__main__":
    sys.exit(main())
