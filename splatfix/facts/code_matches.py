"""Places in an extension's sources on which builds are known to break: flags, includes, functors that are gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from splatfix.facts.model.source import CodeMatch
from splatfix.facts.source.folder import files_below, text_of
from splatfix.facts.source.setup_py import SetupScript

# Symbols of CUB's old functors; CCCL 3.0 (CUDA 13.0) removed them.
_CUB = re.compile(r"\bcub::(Max|Min|Sum|Equality|Inequality|Difference|Division)\b")
_FIXED_WIDTH = re.compile(r"\b(u?int(8|16|32|64)_t|uintptr_t)\b")
_SEQUENCE = re.compile(r"\bthrust::sequence\b")
# glm's and torch's headers bring both along.
_GIVES_CSTDINT = re.compile(r"#\s*include\s*<(cstdint|stdint\.h|cinttypes|glm/.*|torch/.*|ATen/.*)>")
_GIVES_CFLOAT = re.compile(r"#\s*include\s*<(cfloat|float\.h|glm/.*|torch/.*|ATen/.*)>")


def standard_flags(script: SetupScript) -> tuple[str, ...]:
    """Flags that force a C++ standard on a CUDA build: not those of another backend's flags in the same file."""
    lists: list[ast.expr] = []
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if "nvcc" in keys:
                lists += node.values
    for call in script.calls("CUDAExtension", "CppExtension"):
        lists += [item.value for item in call.keywords if item.arg == "extra_compile_args"]
    texts = [text for item in lists if isinstance(found := script.literal(item), list) for text in found]
    texts += script.nvcc_flags
    return tuple(dict.fromkeys(text for text in texts if text and re.match(r"[-/]+std[=:]", text)))


def own_path_in_flags(script: SetupScript) -> bool:
    """A flag is put together from "-I" and the folder that setup.py lies in, as the Inria family does for glm."""

    def speaks_of_itself(node: ast.AST, depth: int = 0) -> bool:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id == "__file__":
                return True
            if isinstance(inner, ast.Call) and SetupScript.callee(inner) in ("getcwd", "cwd"):
                return True
            named = script.assigned.get(inner.id) if isinstance(inner, ast.Name) and depth < 5 else None
            if named is not None and speaks_of_itself(named, depth + 1):
                return True
        return False

    for node in ast.walk(script.tree):
        parts = (
            node.values
            if isinstance(node, ast.JoinedStr)
            else [node.left]
            if isinstance(node, ast.BinOp)
            else []
        )
        first = parts[0] if parts else None
        if isinstance(first, ast.Constant) and str(first.value).startswith("-I") and speaks_of_itself(node):
            return True
    return False


def passages_of(folder: Path) -> Iterator[CodeMatch]:
    """The first place of each kind in each file of an extension's source folder."""
    for file in files_below(folder, (".cu", ".cuh", ".h", ".hpp", ".cpp"), depth=3):
        name, text = file.relative_to(folder).as_posix(), _without_comments(text_of(file))
        if match := _CUB.search(text):
            yield _passage("cub-max", name, text, match)
        match = _SEQUENCE.search(text)
        if match and "thrust/sequence.h" not in "".join((text, *_included(file, text))):
            yield _passage("no-thrust-sequence", name, text, match)
        # a .cu file gets the types from nvcc's own headers; a header is read by the host compiler alone, too
        header = file.suffix in (".h", ".hpp")
        match = _FIXED_WIDTH.search(text) if header else None
        if match and not any(_GIVES_CSTDINT.search(part) for part in (text, *_included(file, text))):
            yield _passage("no-cstdint", name, text, match)
        match = re.search(r"\bFLT_MAX\b", text)
        if match and not any(_GIVES_CFLOAT.search(part) for part in (text, *_included(file, text))):
            yield _passage("no-cfloat", name, text, match)


def _included(file: Path, text: str) -> Iterator[str]:
    """The local headers that a file includes, one level deep."""
    for name in re.findall(r'#\s*include\s*"([^"]+)"', text):
        yield text_of(file.parent / name)


def _without_comments(text: str) -> str:
    """The text with comments blanked, so that line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group(0))

    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)


def _passage(kind: str, name: str, text: str, match: re.Match[str]) -> CodeMatch:
    line = text.count("\n", 0, match.start()) + 1
    return CodeMatch(kind, name, line, text.splitlines()[line - 1].strip()[:160])
