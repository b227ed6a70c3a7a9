"""Names and messages that a terminal would obey, hide, reorder or take for splatfix's own, and a checkout full of them."""

from pathlib import Path

from tests.files import put

from .checkouts import COMMIT, FILES, SETUP

CONTROL = "\x1b[2J\x1b]0;title\x07\x08\r\x7f\x9b31m\x85"
UNICODE = "\u202e\u2066\u2069\u200e\u200f\u061c\u200b\u200d\ufeff\u2028\u2029\u00ad\u3000\U000e0041"
MARKUP = "[/][link=https://evil.example]x[/link][bold red]](javascript:alert(1))<b>`|\\"
NAMES = {
    "escape": "a\x1b[31mb",
    "c1": "a\x9b31mb",
    "control": CONTROL,
    "unicode": UNICODE,
    "newline": "a\n  \u2192 run\n    $ rm -rf ~",
    "undecodable": "a\udcff\udc9bb",
    "markup": "[/][bold]a\\",
    "quotes": "it's\x1b\"$(x)`y`!!",
}
"""Names of files as a POSIX file system takes them; those that are no UTF-8 with surrogates."""


def write_speaking_checkout(folder: Path) -> None:
    """A checkout whose folders, modules, versions, remotes and pins hold all of these."""
    said = CONTROL + UNICODE + MARKUP
    put(folder, {**FILES, "simple_knn.py": "", ".git/HEAD": COMMIT})
    modules = ""
    for number, name in enumerate(NAMES.values()):
        setup, own = SETUP, {"splat_probe": f"splat{name}", "1.0": f"1.0{said}"}
        for word, text in {**own, "splat_probe._C": f"splat.{said}", "ext.cu": f"{name}.cu"}.items():
            setup = setup.replace(f'"{word}"', repr(text))
        files = {f"submodules/{name}/setup.py": setup, f"train{name}.py": FILES["train.py"]}
        put(folder, {**files, f"broken{name}.py": "import gsplat\nx = ("})
        modules += f'[submodule "m{number}"]\n\tpath = submodules/m{number}{name}\n\turl = git@evil.example:{name}/{said}\n'
    remote = f'[remote "origin"]\n\turl = https://github.com/someone/{said}x.git\n'
    pins = f"torch==1.0{said}\n{said}\n"
    put(folder, {".git/config": remote, ".gitmodules": modules, "requirements.txt": pins})
