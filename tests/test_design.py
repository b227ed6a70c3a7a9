"""Holds the import table of the design: which room may import which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from string import Formatter

import pytest

from splatfix.core.errors import stated
from splatfix.knowledge.dropins import DROPINS

ROOT = Path(__file__).resolve().parent.parent
STDLIB = set(sys.stdlib_module_names)

# Room -> rooms of ours it may import (itself and `core` always).
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "binaries": set(),
    "knowledge": set(),
    "kernels": set(),
    "model": {"binaries", "knowledge"},
    "facts": {"binaries", "model"},
    "context": {"facts", "knowledge", "model"},
    "budget": {"knowledge"},
    "scenes": {"facts"},
    "checks": {"facts", "knowledge", "context", "budget", "model"},
    "plan": {"facts", "knowledge", "context", "checks", "model"},
    "wheels": {"binaries", "facts", "knowledge", "context", "model"},
    "install": {"binaries", "facts", "knowledge", "context", "checks", "plan", "explain", "model", "wheels"},
    "explain": {"knowledge"},
    "report": {"model"},  # and the data classes of other rooms, see DATA_CLASSES
    "certify": {"facts", "knowledge", "context", "checks", "explain", "model"},
    "containers": {"certify", "facts", "explain", "knowledge", "context", "plan", "model"},
    "app": {
        *("facts", "knowledge", "context", "checks", "plan", "install", "certify", "containers"),
        *("explain", "wheels", "report", "budget", "scenes", "model"),
    },
    "cli": {"app", "knowledge"},  # to parse architecture names
}

# What `report` may import of other rooms: modules that only define data.
DATA_CLASSES = {
    "splatfix.context.model",
    "splatfix.context.inspection",
    "splatfix.checks.scene.model",
    "splatfix.facts.scene.model",
    "splatfix.budget.model",
    "splatfix.certify.model",
    "splatfix.explain.model",
    "splatfix.install.outcome",
    "splatfix.wheels.model",
    "splatfix.install.journal",
}

# What a room may import of the trainer, by the standard library alone: COLMAP's one reader, its finder of scenes, the one
# record, one set of words.
TRAINERS = {
    "facts": {"smoke_trainer.data.colmap_files", "smoke_trainer.errors"},
    "certify": {
        "smoke_trainer.data.find",
        "smoke_trainer.errors",
        "smoke_trainer.progress",
        "smoke_trainer.record",
    },
    "report": {"smoke_trainer.progress", "smoke_trainer.record"},
}

# Files that are staged into the target environment and run there beside the kernels.
STAGED = {
    "splatfix/certify/kernel_probe.py": {"kernels"},
    "splatfix/certify/kernel_calls.py": {"smoke_trainer"},
    "splatfix/certify/stacks/compare_renders.py": {"kernels", "smoke_trainer"},
    **{
        f"splatfix/certify/inside/{name}.py": {"smoke_trainer"} for name in ("observer", "training", "phases")
    },
}

# Rooms that run inside a target environment, and what they may import besides the standard library.
THIRD_PARTY: dict[str, set[str]] = {
    "core": {"packaging", "msgspec", "filelock", "tomli"},
    "binaries": {"msgspec"},
    "knowledge": {"packaging", "fastjsonschema", "msgspec"},
    "kernels": {"torch", "scipy", "triton"},
    "smoke_trainer": {"torch", "numpy", "PIL", "splatfix", "gsplat", "diff_gaussian_rasterization"},
}
# At module level these may import less: engines and extras are looked for inside functions.
TOP_LEVEL: dict[str, set[str]] = {
    "kernels": {"torch"},
    "smoke_trainer": {"torch", "numpy", "PIL", "splatfix"},
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def nodes(*folders: str) -> Iterator[tuple[Path, ast.AST]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in nodes_of(path):
                yield path, node


def sources(room: str) -> list[Path]:
    folder = ROOT / room if room == "smoke_trainer" else ROOT / "splatfix" / room
    return sorted(folder.rglob("*.py"))


def imports(path: Path, *, top_level: bool = False) -> list[tuple[int, str]]:
    """(line, absolute module name) of every import in a file; names imported from a package count as its modules."""
    imported: list[tuple[int, str]] = []
    for node in _at_run_time(path, functions=False) if top_level else nodes_of(path):
        if isinstance(node, ast.Import):
            imported += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            imported.append((node.lineno, str(node.module)))
            if node.module == "splatfix":
                imported += [(node.lineno, f"splatfix.{alias.name}") for alias in node.names]
    return imported


def _at_run_time(path: Path, *, functions: bool = True) -> Iterator[ast.AST]:
    """Statements that run, so that none under `if TYPE_CHECKING`; without the functions those that run at import."""
    pending: list[ast.AST] = [tree_of(path)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        if functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            pending += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_the_table_allows(room: str) -> None:
    files = sources(room)
    assert files, f"the room {room} is empty"
    wrong = []
    for path in files:
        allowed = MAY_IMPORT[room] | STAGED.get(path.relative_to(ROOT).as_posix(), set())
        for line, module in imports(path):
            parts = module.split(".")
            if parts[0] in ("smoke_trainer", "tools") or (parts[0] == "splatfix" and len(parts) > 1):
                other = parts[1] if parts[0] == "splatfix" else parts[0]
                if other in (room, "core", "__version__"):
                    continue
                if room == "report" and module in DATA_CLASSES:
                    continue
                if module in TRAINERS.get(room, ()):
                    continue
                if other not in allowed:
                    wrong.append(f"{name_of(path)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_what_facts_imports_of_the_trainer_needs_no_package() -> None:
    code = "import sys; sys.modules.update(numpy=None, torch=None); import splatfix.facts.scene.reader"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions count: they would only hide a circle."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in ("splatfix", "smoke_trainer", "tools")
        for path in (ROOT / folder).rglob("*.py")
    }
    graph = {name: _imported_files(path, files.keys()) - {name} for name, path in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def _imported_files(path: Path, files: Collection[str]) -> set[str]:
    imported: set[str] = set()
    for node in _at_run_time(path):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                imported.add(submodule if submodule in files else str(node.module))
    return imported & set(files)


def test_errors_get_the_values_of_their_blanks() -> None:
    """Each row of an errors.toml is raised somewhere, with exactly the values that its sentences name."""
    given: dict[str, set[str]] = {}
    for path, node in nodes("splatfix"):
        # of SplatfixError, Rejected and its kinds
        if isinstance(node, ast.Call) and re.search(r"^[A-Z]\w+\.of$", ast.unparse(node.func)):
            if not isinstance(node.args[0], ast.Constant):
                continue  # SplatfixError.of itself
            place = ast.literal_eval(node.args[0])
            values = {str(keyword.arg) for keyword in node.keywords} - {"todo", "details", "exit_code"}
            given.setdefault(place, set()).update(values)
            assert place.partition(".")[0] == path.relative_to(ROOT / "splatfix").parts[0], f"{path}: {place}"
    blanks: dict[str, set[str]] = {}
    for path in (ROOT / "splatfix").glob("*/errors.toml"):
        for name, row in stated(path.parent.name).items():
            assert row.keys() <= {"code", "what", "meaning", "todo", "exit"}, (path, name)
            texts = [row["what"], row.get("meaning", "")]
            for item in row.get("todo", ()):
                texts += [item] if isinstance(item, str) else [*item["argv"], item.get("text", "")]
            fields = {field for text in texts for _, field, _, _ in Formatter().parse(text) if field}
            blanks[f"{path.parent.name}.{name}"] = fields
    assert given == blanks


@pytest.mark.parametrize("room", sorted(THIRD_PARTY))
def test_rooms_that_run_elsewhere_import_nothing_else(room: str) -> None:
    wrong = []
    for path in sources(room):
        for top_level in (False, True):
            allowed = TOP_LEVEL.get(room, THIRD_PARTY[room]) if top_level else THIRD_PARTY[room]
            if room == "kernels" and not top_level:
                allowed = allowed | {"splatfix"}
            for line, module in imports(path, top_level=top_level):
                name = module.split(".")[0]
                if name and name not in STDLIB and name not in allowed and name not in (room, "splatfix"):
                    wrong.append(f"{name_of(path)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_kernels_stand_alone() -> None:
    """Kernel files are copied into a drop-in distribution, so they import nothing of ours but one another, by full name."""
    wrong = [
        f"{path.name}:{line} imports {module}"
        for path in sources("kernels")
        for line, module in imports(path)
        if module.startswith("splatfix")
        and (not module.startswith("splatfix.kernels.") or "from ." in path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_drop_in_carries_what_its_kernels_import() -> None:
    """At once, in pure PyTorch; and at a call, with the CUDA kernels that it has."""
    for dropin in DROPINS:
        for names, top_level in ((dropin.kernels, True), ((*dropin.kernels, *dropin.cuda), False)):
            for name in names if dropin.cuda or top_level else ():
                path = ROOT / "splatfix" / "kernels" / name
                for _, module in imports(path, top_level=top_level) if path.suffix == ".py" else ():
                    if module.startswith("splatfix.kernels."):
                        assert f"{module.rpartition('.')[2]}.py" in names, (dropin.name, name, module)


def test_the_trainer_knows_only_the_kernels() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in sources("smoke_trainer")
        for line, module in imports(path)
        if module.startswith("splatfix")
        and not module.startswith(("splatfix.kernels", "splatfix.__version__"))
        and module != "splatfix"
    ]
    assert not wrong, "\n".join(wrong)


# Who writes to standard output or error, besides the console: the JSON exit, constant words before rich is loaded, and
# programs of their own, which run in the target environment.
WRITERS = {
    "splatfix/report/console.py",
    "splatfix/app/result.py",
    "splatfix/kernels/nvrtc.py",
    "splatfix/cli/__init__.py",
    "splatfix/explain/passthrough.py",
    "splatfix/facts/environment/probe_env.py",
    "splatfix/facts/machine/probe_cuda.py",
    "splatfix/certify/kernel_probe.py",
    "splatfix/install/after_import.py",
}
_WRITES = re.compile(
    r"print|(sys\.)?std(out|err)\.(buffer\.)?write(lines)?|(typer|click)\.(echo|secho)|os\.write|rich\.print|_?Console"
)


def test_nothing_bypasses_the_console() -> None:
    """Strangers' words are escaped there, and nowhere else."""
    writing = {
        name_of(path)
        for path, node in nodes("splatfix")
        if (isinstance(node, ast.Call) and _WRITES.fullmatch(ast.unparse(node.func)))
        or (isinstance(node, ast.ImportFrom) and node.module == "rich.markup")
    }
    assert writing == WRITERS


# What of `plan` reads the disk, and why. The makers of options (plan/backends) and what ranks them get all from the facts.
PLAN_READS = {
    "checkout.py": "what a SOURCE is decides what is read of it",
    "dependencies.py": "what scripts of a SOURCE import, and what its lists of requirements name",
    "wheel_build.py": "the texts that are edited, setup.py once more, what the scratch copy is of, torch's own headers",
}


def test_plan_reads_no_disk() -> None:
    """The face of `facts` has classes, which are data, and functions, which read."""
    reading = set()
    for path in sources("plan"):
        for node in nodes_of(path):
            if not isinstance(node, ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names]
            faces = ("splatfix.facts", "splatfix.facts.checkout")
            if node.module in faces and any(name[0].islower() for name in names):
                reading.add(path.name)
    assert reading == set(PLAN_READS)


def test_what_another_interpreter_runs_as_a_file_imports_nothing_of_ours() -> None:
    files = ("core/watchdog", "facts/environment/probe_env", "facts/machine/probe_cuda")
    for path in (ROOT / "splatfix" / f"{name}.py" for name in files):
        assert not [module for _, module in imports(path) if module.split(".")[0] == "splatfix"], path


def test_data_classes_are_structs() -> None:
    """The standard library writes the methods of each when it is imported: a fifth of a diagnosis."""
    eager = {
        name_of(path)
        for path, node in nodes("splatfix")
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if "dataclass" in {alias.name for alias in node.names}
    }
    assert eager == set()


def test_every_room_is_in_the_table() -> None:
    rooms = {path.parent.name for path in (ROOT / "splatfix").glob("*/__init__.py")}
    assert rooms - {"_bundled"} == set(MAY_IMPORT)


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path, node in nodes("splatfix", "smoke_trainer")
        if isinstance(node, ast.Module) and not ast.get_docstring(node)
    ]
    assert not silent


# What starts processes, and why each of them may.
STARTS_PROCESSES = {
    "splatfix/core/runner.py": "the one runner, which isolates every child",
    "splatfix/core/shell.py": "only quotes words",
    "splatfix/explain/passthrough.py": "starts the command that was typed, on the user's own terminal",
    "splatfix/certify/monitor.py": "starts the command that was typed, on the user's own terminal",
    "splatfix/install/setup_recorder.py": "refuses them in the place of subprocess, in the target interpreter",
}


def test_only_the_runner_starts_processes() -> None:
    """Every child is isolated there from the folder in which splatfix was started."""
    starters = {"subprocess", "multiprocessing", "pty", "asyncio"}
    calls = ("exec", "spawn", "posix_spawn", "popen", "system", "fork", "startfile")
    starting = set()
    for path, node in nodes("splatfix", "smoke_trainer"):
        if isinstance(node, ast.Module) and any(
            module.split(".")[0] in starters for _, module in imports(path)
        ):
            starting.add(name_of(path))
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node.value) == "os"
            and node.attr.startswith(calls)
        ):
            starting.add(name_of(path))
    assert starting == set(STARTS_PROCESSES)


# What is written for people. Whoever needs to know something of it gets a field of its own, by which it is decided.
PROSE = {
    *("detail", "label", "meaning", "message", "note", "reason", "shown_by", "summary", "text", "title"),
    *("what", "why"),
}
_TAKES_APART = {
    *("startswith", "endswith", "find", "index", "partition", "rpartition", "removeprefix", "removesuffix"),
    *("replace", "split"),
}


def _by_phrase(node: ast.AST) -> bool:
    """It looks for words in a text that was written for people."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return _is_prose(node.comparators[0]) and _is_phrase(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in _TAKES_APART:
            return _is_prose(node.func.value) and _is_phrase(node.args[0])
        if ast.unparse(node.func) in ("re.search", "re.match", "re.fullmatch"):
            return len(node.args) > 1 and _is_prose(node.args[1])
    return False


def _is_prose(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in PROSE
    return isinstance(node, ast.Name) and node.id in PROSE - {"text", "label", "message"}


def _is_phrase(node: ast.AST) -> bool:
    values = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(isinstance(item, ast.Constant) and re.search("[a-z]{3}", str(item.value)) for item in values)


def test_nothing_decides_by_a_phrase() -> None:
    deciding = {
        f"{name_of(path)}: {ast.unparse(node)}"
        for path, node in nodes("splatfix", "smoke_trainer")
        if _by_phrase(node)
    }
    assert not deciding


# They read the command that made a certificate, which holds no other word of it.
READS_COMMANDS = {"splatfix/app/certify.py", "splatfix/app/stored.py"}
_LOOKS_INTO = re.compile(r"\b(error|problem|refused|rejected|refusal|answer)\.code\b|\.argv\b")


def test_outcomes_are_values() -> None:
    """In plan and app no error is caught to learn an answer, by no code of one is decided, and no command is taken apart."""
    wrong = []
    for path, node in nodes("splatfix/plan", "splatfix/app"):
        goes_on = isinstance(node, ast.ExceptHandler) and not isinstance(node.body[-1], ast.Raise)
        takes_apart = isinstance(node, (ast.Compare, ast.Subscript))
        keeps = isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        text = ast.unparse(node) if goes_on or takes_apart or keeps else ""
        if goes_on and "SplatfixError" in text.partition("\n")[0]:
            wrong.append(f"{name_of(path)}: {text}")
        if (takes_apart or keeps) and _LOOKS_INTO.search(text) and name_of(path) not in READS_COMMANDS:
            wrong.append(f"{name_of(path)}: {text}")
    assert not wrong, "\n".join(wrong)


def test_the_command_line_is_parsed_and_not_searched() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources("cli")}
    assert not [name for name, text in texts.items() if "sys.argv" in text]


# Lines of Python that a room has reached; a number here only falls. The aim is DESIGN's: 64,500 outside tests, 42,000 in them.
CEILINGS = {
    "splatfix/app": 2725,
    "splatfix/binaries": 1714,
    "splatfix/budget": 771,
    "splatfix/certify": 5697,
    "splatfix/checks": 6378,
    "splatfix/cli": 986,
    "splatfix/containers": 1325,
    "splatfix/context": 2584,
    "splatfix/core": 1850,
    "splatfix/explain": 1488,
    "splatfix/facts": 8580,
    "splatfix/install": 4605,
    "splatfix/kernels": 6866,
    "splatfix/knowledge": 3284,
    "splatfix/model": 1790,
    "splatfix/plan": 3897,
    "splatfix/report": 3112,
    "splatfix/scenes": 421,
    "splatfix/wheels": 975,
    "smoke_trainer": 4400,
    "tools": 2281,
    "examples": 58,
    "tests": 44800,
}


@pytest.mark.parametrize("room", CEILINGS)
def test_a_room_is_no_larger_than_it_was(room: str) -> None:
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in (ROOT / room).rglob("*.py"))
    assert lines <= CEILINGS[room], f"{room} has {lines} lines: what came in costs more than what went"
