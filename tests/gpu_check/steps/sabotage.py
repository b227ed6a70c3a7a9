"""Broken extensions: each must be found out on the GPU, taken back, and leave the GPU usable."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..context import DEVICE, Context, changes, contents, error_of
from ..record import Failed, Notes

SOURCE = Path(__file__).resolve().parents[1] / "sabotage"
KINDS = {
    "segfault": "a segmentation fault",
    "illegal-address": "an illegal address",
    "wrong-values": "a wrong result",
}


def run(context: Context, notes: Notes) -> None:
    """Install the three in three environments at once; then verify our own kernels on the same GPU."""
    with ThreadPoolExecutor(len(KINDS)) as pool:
        endings = list(pool.map(lambda kind: _install(context, kind), KINDS))
    for fault, (problem, shown, left) in zip(KINDS.values(), endings, strict=True):
        notes.expect(not problem, f"{fault} in a kernel is found out", problem or shown)
        notes.expect(not left, f"{fault}: the environment is as it was", ", ".join(left[:5]) or "every file")
    python = context.python("sabotage-segfault")
    code, document = context.splatfix("verify", "--device", DEVICE, "--python", python, timeout=90)
    ours = [item for item in document.get("kernels", ()) if item["kind"] == "ours"]
    notes.expect(
        bool(ours) and all(item["outcome"] == "met" for item in ours),
        "the GPU computes as before",
        error_of(document) or f"{len(ours)} kernels verified, exit code {code}",
    )


def write_broken(folder: Path, kind: str) -> None:
    """The source of an extension that is broken in this way."""
    shutil.copytree(SOURCE, folder)
    file = folder / "broken.cu"
    number = list(KINDS).index(kind) + 1
    file.write_text(f"#define SABOTAGE {number}\n{file.read_text(encoding='utf-8')}", encoding="utf-8")


def _install(context: Context, kind: str) -> tuple[str, str, list[str]]:
    """What is wrong with how it was met, what shows that it was found out, and what was left behind."""
    python = context.python(f"sabotage-{kind}")
    before = contents(python)
    source = context.folder("sabotage") / kind
    shutil.rmtree(source, ignore_errors=True)
    if context.rehearsal:
        from ..rehearsal import write_source

        write_source(source, "simple-knn", kind)
    else:
        write_broken(source, kind)
    try:
        code, document = context.splatfix("install", source, "--python", python, "--yes", timeout=150)
    except Failed as error:
        return str(error), "", changes(before, contents(python))
    problem, shown = "", error_of(document)
    error_code = (document.get("error") or {}).get("code")
    if (code, error_code) != (1, "computes-wrongly"):
        problem = shown or f"exit code {code}: it stays"
    return problem, shown, changes(before, contents(python))
