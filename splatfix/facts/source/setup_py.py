"""Reads a setup.py as a syntax tree: what it declares, which environment variables it looks at, which flags it hands on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from splatfix.facts.source.build_variables import VariableRead, environment_reads
from splatfix.facts.source.evaluator import OWN_FOLDER, StaticEvaluator, markers
from splatfix.facts.source.program import files_of_module
from splatfix.facts.source.reader import FolderReader, NotPython
from splatfix.facts.source.syntax import (
    imported,
    is_main,
    keyword_value,
    last_name,
    text_constant,
    texts_below,
)

_MOST_IMPORTED = 10
_VERSION_NUMBER = re.compile(r"\b\d+(\.\d+)*\b")
_ARCHIVE = re.compile(r"https?://\S+\.(zip|tgz|tar(\.\w+)?)")
_CXX_STANDARD = re.compile(r"[-/]+std[=:]")


class SetupScript(StaticEvaluator):
    """One parsed setup.py. Values that only running it would tell are left out, never guessed.

    What it declares is worked out when it is asked: most folders of a checkout only have to say whether they hold an extension.
    """

    def __init__(self, trees: Sequence[ast.Module] = (), *, error: str = "", source: str = "") -> None:
        super().__init__(trees)
        self.error = error
        self.source = source
        """The text of a script with an error."""
        self._body: Sequence[ast.stmt] = trees[0].body if trees else ()

    @cached_property
    def reads(self) -> tuple[VariableRead, ...]:
        return environment_reads(self)

    @cached_property
    def nvcc_flags(self) -> tuple[str, ...]:
        """Literal texts that end in the ``"nvcc"`` list of ``extra_compile_args``, also through named lists."""
        lists: list[ast.AST] = []
        for node in self.nodes:
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if key is not None and _is_nvcc(key):
                        lists.append(value)
        # and what ``flags["nvcc"] += [...]`` and ``flags["nvcc"].append(...)`` put there; not what else ``flags`` holds
        for node in self.nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(item, ast.Subscript) and _is_nvcc(item.slice) for item in targets):
                    lists.append(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Subscript) and _is_nvcc(owner.slice):
                    lists += node.args
        # --offload-arch is the compiler's for AMD's GPUs, behind a branch for ROCm
        texts = (text for text in self.texts_that_reach(lists) if text != "nvcc")
        return _unique(text for text in texts if not text.startswith("--offload-arch"))

    @cached_property
    def include_dirs(self) -> tuple[str, ...]:
        """Literal texts of ``include_dirs=[...]``."""
        visited: set[int] = set()
        return _unique(
            text for value in self._keyword_values("include_dirs") for text in texts_below(value, visited)
        )

    @cached_property
    def knows_include_dirs(self) -> bool:
        """Every folder of ``include_dirs`` stands in it, and none is worked out as it runs."""
        for value in self._keyword_values("include_dirs"):
            listed = self.named_list(value)
            if not isinstance(listed, (ast.List, ast.Tuple)):
                return False
            if any(text_constant(item) is None and self.path(item) is None for item in listed.elts):
                return False
        return True

    @property
    def libraries(self) -> tuple[str, ...]:
        """What ``libraries=[...]`` and ``-l`` flags name, also through one named list."""
        names: list[str] = []
        visited: set[int] = set()
        for value in self._keyword_values("libraries"):
            names += texts_below(self.named_list(value), visited)
        visited = set()  # one list may be handed to both
        for value in self._keyword_values("extra_link_args"):
            flags = texts_below(self.named_list(value), visited)
            names += [flag.removeprefix("-l") for flag in flags if flag.startswith("-l")]
        return _unique(names)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Every literal text that is not a docstring."""
        docstrings = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        texts = (text_constant(node) for node in self.nodes if id(node) not in docstrings)
        return _unique(text for text in texts if text is not None)

    @property
    def downloads(self) -> tuple[str, ...]:
        """Addresses of the archives that it fetches as it runs."""
        if not any(self.calls("urlopen", "urlretrieve", "download_url_to_file")):
            return ()
        return tuple(text for text in self.literals if _ARCHIVE.fullmatch(text))

    @cached_property
    def for_old_versions(self) -> tuple[str, ...]:
        """Those of them that count only where some version is below a number: behind ``if int(major) < 11:``."""
        texts: list[str] = []
        visited: set[int] = set()
        for node in self.nodes:
            test = node.test if isinstance(node, ast.If) else None
            if not isinstance(node, ast.If) or not isinstance(test, ast.Compare):
                continue
            is_upper_bound = isinstance(test.ops[0], (ast.Lt, ast.LtE))
            if is_upper_bound and _VERSION_NUMBER.search(ast.unparse(test.comparators[0])):
                for statement in node.body:
                    texts += texts_below(statement, visited)
        return _unique(texts)

    @property
    def setups(self) -> tuple[ast.Call, ...]:
        """The calls of ``setup(...)`` that every run of it comes to."""
        return tuple(_sure_setups(self._body))

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that it cannot do without: imported at its top level, outside of any ``try``.

        Of ``from pkg_resources import packaging`` both ``pkg_resources`` and ``pkg_resources.packaging``.
        """
        items = [item for statement in self._body for item in imported(statement)]
        return _unique(name for item in items for name in (item.module, item.deepest))

    @property
    def imports_in_all(self) -> tuple[str, ...]:
        """The top-level names of these and of what its functions import, outside of any ``try``."""
        names: list[str] = []
        pending: list[ast.AST] = list(self._body)
        while pending:
            node = pending.pop(0)
            names += [item.module.partition(".")[0] for item in imported(node)]
            if not isinstance(node, (ast.Try, ast.If)):
                pending += ast.iter_child_nodes(node)
        return _unique(names)

    def _keyword_values(self, keyword: str) -> Iterator[ast.expr]:
        for node in self.nodes:
            if isinstance(node, ast.keyword) and node.arg == keyword:
                yield node.value

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Every call of a function of one of these names, in order of the text."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call) and last_name(node.func) in names]
        yield from sorted(calls, key=lambda call: (call.lineno, call.col_offset))

    def mentions(self, *names: str) -> bool:
        """One of these names appears in the code, as a name, an attribute or a keyword argument."""
        for node in self.nodes:
            if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) in names:
                return True
            if isinstance(node, ast.keyword) and node.arg in names:
                return True
        return False

    def argument(self, call: ast.Call, keyword: str, position: int | None = None) -> Any:
        """The literal value of an argument, with simple names followed; None when only running would tell."""
        argument = keyword_value(call, keyword)
        if argument is None and position is not None and len(call.args) > position:
            argument = call.args[position]
        return None if argument is None else self.value(argument)

    def setup_text(self, keyword: str) -> str | None:
        """A text argument of ``setup(...)``."""
        for call in self.calls("setup"):
            value = self.argument(call, keyword)
            if isinstance(value, str):
                return value
        return None

    def setup_texts(self, keyword: str) -> tuple[str, ...]:
        """A list-of-texts argument of ``setup(...)``, as far as it is literal."""
        for call in self.calls("setup"):
            value = self.argument(call, keyword)
            if isinstance(value, list):
                return tuple(item for item in value if isinstance(item, str))
        return ()


def read_setup_script(file: Path, reader: FolderReader) -> SetupScript:
    """Parse a setup.py; what is there and cannot be read, or is not Python, gives a script with ``error`` set."""
    text = reader.text_or_reason(file)
    if text is None:
        return SetupScript()
    if isinstance(text, str):
        return parse_setup_script(text, reader, file.parent)
    return SetupScript(error=f"{file.name} cannot be read: {text.reason}")


def parse_setup_script(text: str, reader: FolderReader, folder: Path | None = None) -> SetupScript:
    """The script of a setup.py with this text, and of the files in ``folder`` that it imports; one that is not Python has
    ``error`` set."""
    try:
        tree = reader.parse(text)
    except NotPython as error:
        return SetupScript(error=f"setup.py is not Python this version can read: {error}", source=text)
    # the files in its folder that it imports, and those that these import; at most ten
    modules: dict[Path, ast.Module] = {}
    pending = [tree]
    while folder is not None and pending:
        items = [item for node in ast.walk(pending.pop(0)) for item in imported(node)]
        for file in (file for item in items for file in files_of_module(folder, item.deepest.split("."))):
            if file in modules or len(modules) == _MOST_IMPORTED:
                continue
            module = reader.python(file, reader.text(file))
            # an empty __init__.py is none of the ten
            if module is not None and module.body:
                modules[file] = module
                pending.append(module)
    return SetupScript([tree, *modules.values()])


def standard_flags(script: SetupScript) -> tuple[str, ...]:
    """Flags that force a C++ standard on a CUDA build: not those of another backend's flags in the same file."""
    lists: list[ast.expr] = []
    for node in script.nodes:
        if isinstance(node, ast.Dict) and any(key is not None and _is_nvcc(key) for key in node.keys):
            lists += node.values
    for call in script.calls("CUDAExtension", "CppExtension"):
        flags = keyword_value(call, "extra_compile_args")
        if flags is not None:
            lists.append(flags)
    texts: list[Any] = []
    for node in lists:
        value = script.value(node)
        if isinstance(value, list):
            texts += value
    texts += script.nvcc_flags
    return _unique(text for text in texts if isinstance(text, str) and _CXX_STANDARD.match(text))


def own_path_in_flags(script: SetupScript) -> bool:
    """A flag joins "-I" and the folder of setup.py, as the Inria family does for glm."""
    own_folder = script.holding(OWN_FOLDER)
    for node in script.nodes:
        start: ast.AST | None = None
        if isinstance(node, ast.BinOp):
            start = node.left
        elif isinstance(node, ast.JoinedStr) and node.values:
            start = node.values[0]
        flag = text_constant(start) or ""
        if flag.startswith("-I") and own_folder & markers(node):
            return True
    return False


def _sure_setups(body: Iterable[ast.stmt], depth: int = 8) -> list[ast.Call]:
    calls: list[ast.Call] = []
    for statement in body if depth else ():
        if isinstance(statement, (ast.With, ast.Try)):
            calls += _sure_setups(statement.body, depth - 1)
        elif isinstance(statement, ast.If):
            branches = [_sure_setups(inner, depth - 1) for inner in (statement.body, statement.orelse)]
            sure = min(branches[: 1 if is_main(statement.test) else 2], key=len)
            calls += sure
        elif isinstance(statement, ast.Expr):
            call = statement.value
            if isinstance(call, ast.Call) and last_name(call.func) == "setup":
                calls.append(call)
    return calls


def _is_nvcc(node: ast.AST) -> bool:
    return text_constant(node) == "nvcc"


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
