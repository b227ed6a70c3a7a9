"""One secret in everything that a machine, an environment and a checkout can hold, in every form it has there."""

import json
import os
import re
import sys
from pathlib import Path

from tests.files import put
from tests.hostile.checkouts import FILES, SETUP, write_checkout
from tests.install.environments import write_extension
from tests.tables import data

CANARY = "c4NaRyQ7w2Vb8Lk3TrZ9"
"""No word of anything; a token of a known shape is a prefix and two of these."""

LOGIN = f"https://user:{CANARY}@git.example/x"
ADDRESSES = (
    LOGIN,
    f"https://{CANARY}@git.example/x.git",
    f"https://{CANARY}:x-oauth-basic@git.example/x",
    f"ssh://git:{CANARY}@git.example:22/x.git",
    f"https://git.example/x?access_token={CANARY}&a=b",
    f"https://git.example/x?sig={CANARY}",
    f"https://conda.example/t/{CANARY}/channel",
    f"git+https://user:{CANARY}@git.example/x@v1#egg=x",
)
_BEGINNINGS = (
    *("hf_", "ghp_", "github_pat_", "glpat-", "sk-", "sk-ant-api03-", "xoxb-", "xoxa-"),
    *("xoxp-", "pypi-"),
)
TOKENS = (
    *(beginning + CANARY * 2 for beginning in _BEGINNINGS),
    f"eyJ{CANARY}.eyJ{CANARY}.{CANARY}",
    f"AKIA{CANARY.upper()[:16]}",
)
ASSIGNED = (f"API_KEY={CANARY}", f"MY_TOKEN={CANARY}", f"--password={CANARY}", f"SECRET='{CANARY} {CANARY}'")
FLAGS = (f"-D{ASSIGNED[0]}", f"-D{ASSIGNED[1]}", f"-DX={TOKENS[0]}", f"-DURL={LOGIN}")
EVERYTHING = (*ADDRESSES, *TOKENS, *ASSIGNED)


_SAY = "    print(text)\n    print(text, file=sys.stderr)\n"


def found_in(data: bytes | str) -> list[str]:
    """The lines that hold the secret."""
    text = os.fsdecode(data)
    signs = (CANARY, TOKENS[-1])
    return [line.strip()[:300] for line in text.splitlines() if any(sign in line for sign in signs)]


def _filled(table: str, **more: str) -> dict[str, str]:
    """Texts of a table, by name, with the secrets in their blanks."""
    blanks = {
        "LOGIN": LOGIN,
        "CANARY": CANARY,
        "TOKEN": TOKENS[0],
        "PYPI": TOKENS[9],
        "CHANNEL": ADDRESSES[6],
    }
    blanks |= {"FLAGS": " ".join(FLAGS), "ASSIGNED": ASSIGNED[0], "MANY": "\n".join(EVERYTHING), **more}
    return {
        name: re.sub("<([A-Z]+)>", lambda match: blanks[match[1]], text)
        for name, text in data(__file__)[table].items()
    }


def environment_variables() -> dict[str, str]:
    """Variables that decide something in a build, and some that only hold a secret."""
    return _filled("environment")


def write_secret_home(folder: Path) -> None:
    """What pip, git and others keep of a person."""
    put(folder, _filled("home"))


def write_secret_checkout(folder: Path) -> None:
    """A checkout with the secret in every file that is read."""
    write_checkout(folder)
    flags = ", ".join(map(repr, (*FLAGS, *EVERYTHING)))
    script = SETUP.replace('{"nvcc": [', f'{{"cxx": ["-std=c++14", {flags}], "nvcc": [{flags}, ').replace(
        "    cmdclass",
        f"    install_requires=[{flags}],\n    url={LOGIN!r},\n    description={TOKENS[0]!r},\n    cmdclass",
    )
    modules = ""
    for number, address in enumerate((*ADDRESSES, f'"{LOGIN}"')):
        modules += f'[submodule "m{number}"]\n\tpath = submodules/m{number}\n\turl = {address}\n'
    other = script.replace("splat_probe", "simple_knn")
    put(folder, _filled("checkout", SETUP=script, MODULES=modules, TRAIN=FILES["train.py"], OTHER=other))


def write_speaking_extension(folder: Path, *, broken: bool = False) -> Path:
    """A C extension whose build prints every secret, to both streams; ``broken`` it then fails with them."""
    write_extension(folder, extra=f'#error "{LOGIN} {TOKENS[0]} {ASSIGNED[0]}"' if broken else "")
    script = (folder / "setup.py").read_text()
    said = f"import os, sys\nfor text in {EVERYTHING!r} + tuple(os.environ.items()):\n{_SAY}"
    flags = repr([*FLAGS, "-O0"]).replace("'", '"')
    return put(
        folder,
        {
            "setup.py": said + script.replace('["-O0"]', flags),
            ".git/config": f'[remote "origin"]\n\turl = {LOGIN}\n',
        },
    )


def write_secret_packages(site: Path) -> None:
    """Installed distributions whose metadata hold the secret."""
    for number, address in enumerate(ADDRESSES):
        info = f"diff_gaussian_rasterization{number}-1.0.dist-info"
        editable = {
            "url": address,
            "dir_info": {"editable": True},
            "vcs_info": {"requested_revision": TOKENS[0]},
        }
        metadata = f"Name: x\nVersion: 1.0\nHome-page: {address}\nRequires-Dist: torch @ {address}\n"
        put(site / info, {"METADATA": metadata, "direct_url.json": json.dumps(editable), "RECORD": ""})
    put(
        site,
        {
            "fused-ssim.egg-link": f"/no/{TOKENS[0]}\n.",
            "simple_knn-1.0.egg-info/PKG-INFO": f"Name: simple-knn\nVersion: 1.0\nDownload-URL: {LOGIN}\n",
            "fused_ssim/__init__.py": f"raise ImportError({' '.join(EVERYTHING)!r})\n",
        },
    )


def write_speaking_tools(folder: Path) -> None:
    """Programs on PATH that answer with the secret, and fail."""
    for name in ("nvcc", "ninja", "cmake", "docker", "nvidia-smi", "colmap", "ccache", "vulkaninfo", "clang"):
        put(
            folder,
            {name: f"#!{sys.executable} -I\nimport sys\nfor text in {EVERYTHING!r}:\n{_SAY}sys.exit(3)\n"},
        )
        (folder / name).chmod(0o755)
