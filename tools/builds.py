"""``python -m tools.builds SOURCE --label TEXT --python ENV``: one attempt to build a checkout, by pip or by splatfix, into the
record of real builds (``tests/records/native_builds.json``).

SOURCE is a folder that the caller has, ENV a virtual environment with torch; both stay as they are. The attempt runs on a copy
of the first, which is compared with it afterwards, and in a copy of the second made of hard links. What is recorded is seen
there: how it ended and after how many seconds, the line that a person reads first, the GPU code of every library that came,
and whether what came can be imported. pip gets the toolkit, the architectures and the headers that splatfix would find by
itself, for there is no GPU that torch could ask.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from splatfix.binaries import is_binary, read_binary
from splatfix.core.files import sha256_of, write_text
from splatfix.core.runner import Completed, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.install.verify import wants_gpu
from splatfix.knowledge import Arch
from splatfix.model import loaded_fatbins

RECORD = Path(__file__).resolve().parents[1] / "tests" / "records" / "native_builds.json"
RUNNER = Runner()
WITH = ("pip", "before", "after", "first")
"""Who builds: plain pip, splatfix as it was, splatfix with the cures, splatfix on what it was never tried on."""

WANTS_GPU = "wants a GPU"
"""What an import says that cannot be shown without one."""

_ERROR = re.compile(r"(?<![\w-])(fatal )?error\b|Error:", re.IGNORECASE)
# pip's own lines stand before and after what the build said
_PIPS_OWN = re.compile(
    r"^(subprocess-exited-with-error|metadata-generation-failed|Error compiling objects)|exit code"
)
# variables that say for which GPUs, and whether for any
_DECIDES = re.compile(r"ARCH|GPU|FORCE|WITH_CUDA")
# an address, which stays, or the folders of a path
_FOLDER = re.compile(r"(https?://[^\s'\"]+)|(?<![\w.])/[^\s:'\"]*/")


def main(argv: list[str] | None = None) -> int:
    """Make one attempt and write it down."""
    parser = argparse.ArgumentParser(prog="python -m tools.builds", description=__doc__)
    add = parser.add_argument
    add("source", type=Path, help="folder with the checkout")
    add("--label", required=True, help="what the record calls it: owner/name, and the folder in it")
    add("--commit", default="", help="which commit it is")
    add("--in", dest="inside", default=".", help="folder of the checkout that is built")
    add("--python", type=Path, required=True, help="a virtual environment with torch")
    add("--with", dest="with_", choices=WITH, default="after")
    add("--list", default="compared", choices=("compared", "unprepared"))
    add("--target", default="sm_120")
    add("--cuda-home", default=os.environ.get("CUDA_HOME", ""), help="for pip: the toolkit")
    add("--jobs", default="2")
    add("--limit", type=float, default=720.0, help="seconds")
    add("--record", type=Path, default=RECORD)
    add("more", nargs="*", help="more words for splatfix install, after --")
    options = parser.parse_args(argv)
    with temporary_folder() as folder:
        copy, environment = folder / "source", folder / "env"
        shutil.copytree(options.source, copy, symlinks=True)
        copy_environment(options.python, environment)
        site = next(environment.glob("lib/python*/site-packages"))
        were, before = files_of(copy), {path.name for path in site.iterdir()}
        command, done = attempt(options, copy, environment, site)
        row = observe(done, command, site, before, environment)
        row["checkout"] = "unchanged" if files_of(copy) == were else "changed"
    write_row(options.record, options.list, options.label, options.commit, options.with_, row)
    print(json.dumps(row, indent=1))
    return 0


def copy_environment(base: Path, copy: Path) -> None:
    """A second environment of hard links: pip replaces files, it never writes into one."""
    shutil.copytree(base, copy, symlinks=True, copy_function=os.link)
    scripts = [path for path in (copy / "bin").iterdir() if path.is_file() and not path.is_symlink()]
    for path in [copy / "pyvenv.cfg", *scripts]:
        content = path.read_bytes()
        if str(base).encode() in content and not is_binary(path):
            mode = path.stat().st_mode
            path.unlink()
            path.write_bytes(content.replace(str(base).encode(), str(copy).encode()))
            path.chmod(mode)


def files_of(folder: Path) -> dict[str, str]:
    """Every file below a folder with the digest of its content; git's own are left out."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts:
            digests[str(path.relative_to(folder))] = sha256_of(path)
    return digests


def attempt(
    options: argparse.Namespace, source: Path, environment: Path, site: Path
) -> tuple[str, Completed]:
    """Build it: the command as the record says it, and how it ended."""
    folder, python = source / options.inside, environment / "bin" / "python"
    variables = dict(os.environ)
    variables.pop("PYTHONPATH", None)
    variables.pop("VIRTUAL_ENV", None)
    if options.with_ != "pip":
        typed = f"install SOURCE --target {options.target} --python ENV --jobs {options.jobs} --yes".split()
        typed += options.more
        paths = {"SOURCE": str(folder), "ENV": str(python)}
        # a wheel that an earlier attempt left would prove nothing
        variables["SPLATFIX_CACHE"] = str(environment.parent / "cache")
        argv = [sys.executable, "-m", "splatfix", *(paths.get(word, word) for word in typed)]
        return f"splatfix {' '.join(typed)}", RUNNER.run(argv, timeout=options.limit, env=variables)
    variables |= {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(environment),
        "TORCH_CUDA_ARCH_LIST": Arch.parse(options.target).cc,
        "CPATH": os.pathsep.join(map(str, site.glob("nvidia/*/include"))),
        "MAX_JOBS": options.jobs,
    }
    if options.cuda_home:
        variables["CUDA_HOME"] = options.cuda_home
    argv = [str(python), "-m", "pip", "install", ".", "--no-build-isolation"]
    return " ".join(argv[2:]), RUNNER.run(argv, timeout=options.limit, cwd=folder, env=variables)


def observe(
    done: Completed, command: str, site: Path, before: Iterable[str], environment: Path
) -> dict[str, Any]:
    """What an attempt left: its end, the line that says why, and the GPU code of every library that came."""
    new = sorted(path for path in site.iterdir() if path.name not in before)
    # of the build itself, not of what it depends on: splatfix leaves a manifest in its wheels, pip marks what was asked for
    infos = [path for path in new if (path / "splatfix.json").is_file()]
    infos = infos or [path for path in new if (path / "REQUESTED").is_file()]
    records = [(info / "RECORD").read_text(encoding="utf-8") for info in infos]
    tops = {line.partition(",")[0].partition("/")[0] for text in records for line in text.splitlines()}
    came = [path for path in new if path.name in tops]
    row: dict[str, Any] = {"command": command, "exit": done.returncode, "seconds": round(done.seconds)}
    if not done.ok:
        row["said"] = done.error or first_error(f"{done.stderr}\n{done.stdout}") or done.why()
    row["libraries"] = {}
    for top in came:
        for path in sorted([top, *top.rglob("*")]):
            if path.suffix == ".so" and path.is_file():
                # by the reader of ``splatfix inspect``: for each architecture, in how many fatbins it is
                filled = loaded_fatbins(read_binary(path).fatbins)
                archs: Counter[str] = Counter()
                for fatbin in filled:
                    archs.update({f"{entry.kind.value} {entry.arch}" for entry in fatbin.entries})
                code = dict(sorted(archs.items()))
                library = {"sha256": sha256_of(path), "fatbins": len(filled), "code": code}
                row["libraries"][str(path.relative_to(site))] = library
        if (top / "splatfix.json").is_file():
            built = json.loads((top / "splatfix.json").read_text(encoding="utf-8"))
            row["edits"] = sorted({*row.get("edits", []), *built["edits"]})
            variables = built["variables"].items()
            row["variables"] = {name: value for name, value in variables if _DECIDES.search(name)}
    packages = [path for path in came if path.suffix == ".so" or (path / "__init__.py").is_file()]
    modules = [path.name.partition(".")[0] for path in packages]
    if modules:
        row["imports"] = {name: _import(environment / "bin" / "python", name) for name in modules}
    return row


def first_error(output: str) -> str:
    """The first line that names an error, without places of the machine; "" where none does."""
    for line in output.splitlines():
        text = line.strip().removeprefix("error: ")
        if _ERROR.search(line) and not _PIPS_OWN.search(text):
            return _FOLDER.sub(r"\1", text)[:300]
    return ""


def _import(python: Path, module: str) -> str:
    done = RUNNER.run([python, "-c", f"import torch, {module}"], timeout=300)
    if done.ok:
        return "imported"
    gpu_error = wants_gpu(done.stderr)
    if gpu_error:
        return f"{WANTS_GPU}: {gpu_error}"
    return _FOLDER.sub(r"\1", done.why().partition(": ")[2] or done.why())[:300]


def write_row(record: Path, key: str, label: str, commit: str, how: str, row: dict[str, Any]) -> None:
    """Put an attempt into the record, beside the other attempts at the same source."""
    content = json.loads(record.read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = content.setdefault(key, [])
    known = (other for other in rows if (other["source"], other["commit"]) == (label, commit))
    mine: dict[str, Any] | None = next(known, None)
    if mine is None:
        rows.append(mine := {"source": label, "commit": commit})
    mine[how] = {"date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), **row}
    write_text(record, f"{json.dumps(content, indent=1)}\n")


if __name__ == "__main__":
    sys.exit(main())
