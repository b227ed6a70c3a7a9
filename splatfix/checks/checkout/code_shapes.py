"""What a checkout's sources are searched for; and code that is told by the shape of its syntax tree: what a newer Python or torch
refuses, and habits of trainers that cost memory and time.

Each function gives the lines of one of them. A training loop is one in which a ``backward`` is called. What a reader cannot
tell from the file alone is left out: a function that other files call may be called without autograd there.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache

from splatfix.core.source_pattern import NamePattern, SourcePattern
from splatfix.facts.source.program import ShapePattern
from splatfix.facts.source.syntax import keyword_value, last_name
from splatfix.knowledge.breakages import breakages

_DECIDES_ON_PICKLES = frozenset({"weights_only", "pickle_module"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITHOUT_AUTOGRAD = frozenset({"no_grad", "inference_mode"})
_METRICS = frozenset({"psnr", "ssim", "lpips", "lpips_fn", "l1_loss", "fused_ssim"})
_RENDERERS = ("render", "raster")
_ENDS_THE_GRAPH = frozenset({"item", "detach", "tolist", "numpy", "cpu", "float"})
_VIEW = re.compile(r"camera|view", re.IGNORECASE)
_IMAGE = re.compile(r"image", re.IGNORECASE)
_NO_IMAGE = re.compile(r"name|path|width|height|size|id", re.IGNORECASE)


class Code:
    """The syntax tree of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = tuple(ast.walk(tree))
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.loops = [node for node in self.nodes if isinstance(node, (ast.For, ast.While))]

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Walk up through what a node is in, the innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    @cached_property
    def without_autograd(self) -> set[ast.AST]:
        """Return what has autograd off inside, and functions whose every call in the file is in such, and so on up."""
        covered = set(filter(_is_without_autograd, self.nodes))
        functions = [node for node in self.nodes if isinstance(node, _FUNCTIONS)]
        calls: dict[str, list[ast.Call]] = {function.name: [] for function in functions}
        for call in self.calls:
            if (name := last_name(call.func)) in calls:
                calls[name].append(call)
        while True:
            before = len(covered)
            for function in functions:
                around = map(self.around, calls[function.name])
                if calls[function.name] and not any(map(covered.isdisjoint, around)):
                    covered.add(function)
            if len(covered) == before:
                return covered


def evaluations_with_autograd(code: Code) -> list[int]:
    """Return the lines of loops that draw and measure views with autograd on: each keeps what its backward pass would need."""
    called = {last_name(call.func) for call in code.calls}
    lines = []
    for loop in code.loops:
        if _calls_backward(loop):
            continue
        function = next((node for node in code.around(loop) if isinstance(node, _FUNCTIONS)), None)
        # who calls it, and how, is in another file
        if function and not (function.name in called or _calls_backward(function)):
            continue
        names = set()
        for call in _calls(loop):
            if code.without_autograd.isdisjoint(code.around(call)):
                names.add(last_name(call.func))
        if _METRICS & names and any(name.lower().startswith(_RENDERERS) for name in names):
            lines.append(loop.lineno)
    return sorted(lines)


def images_kept_on_the_gpu(code: Code) -> list[int]:
    """Return the lines that keep a view's image on the GPU, whatever options say: ``self.original_image = image.cuda()``."""
    lines = set()
    for owner in code.nodes:
        if not isinstance(owner, ast.ClassDef) or not _VIEW.search(owner.name):
            continue
        for node in ast.walk(owner):
            match node:
                # the last of what is done to it is ``.cuda()`` or ``.to("cuda")``
                case ast.Assign(
                    targets=[ast.Attribute(attr=name), *_],
                    value=ast.Call(func=ast.Attribute(attr="cuda" | "to" as last)) as call,
                ):
                    given = (*call.args, keyword_value(call, "device"))
                    devices = [str(getattr(item, "value", None)) for item in given]
                    on_gpu = last == "cuda" or any(device.startswith("cuda") for device in devices)
                    if on_gpu and _IMAGE.search(name) and not _NO_IMAGE.search(name):
                        lines.add(node.lineno)
    return sorted(lines)


def graphs_kept(code: Code) -> list[int]:
    """Return the lines in a training loop that add a loss with its graph to something from before the loop."""
    lines = set()
    for loop in code.loops:
        losses = set()
        for call in _calls(loop):
            if last_name(call.func) == "backward":
                losses.add(getattr(getattr(call.func, "value", None), "id", None))
        assigned = set[str]()
        # (statement, what is added to, what is added)
        additions: list[tuple[ast.stmt, str, ast.expr]] = []
        for node in _inside(loop.body):
            match node:
                case ast.Assign(targets=targets):
                    assigned.update(target.id for target in targets if isinstance(target, ast.Name))
                case ast.AugAssign(target=ast.Name(id=kept), value=value):
                    additions.append((node, kept, value))
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[value, *_])
                ):
                    additions.append((node, ast.unparse(owner), value))
        for node, kept, value in additions:
            # all of it but that of which only numbers are taken, as by ``loss.item()``
            names = {item.id for item in _inside([value], _is_number) if isinstance(item, ast.Name)}
            has_graph = not losses.isdisjoint(names) and code.without_autograd.isdisjoint(code.around(node))
            if has_graph and kept not in assigned and kept not in losses:
                lines.add(node.lineno)
    return sorted(lines)


def cache_emptied_in_the_loop(code: Code) -> list[int]:
    """Return the lines of ``torch.cuda.empty_cache()`` in each iteration of a training loop, under no condition."""
    lines = set()
    for loop in filter(_calls_backward, code.loops):
        statements = list(loop.body)
        for statement in statements:  # which grows
            match statement:
                case ast.With(body=body) | ast.Try(body=body):
                    statements += body
                case ast.Expr(value=ast.Call(func=function)) if last_name(function) == "empty_cache":
                    lines.add(statement.lineno)
    return sorted(lines)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (item for item in ast.walk(node) if isinstance(item, ast.Call))


def _calls_backward(node: ast.AST) -> bool:
    return any(last_name(call.func) == "backward" for call in _calls(node))


def _is_definition(node: ast.AST) -> bool:
    return isinstance(node, (*_FUNCTIONS, ast.ClassDef))


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in _ENDS_THE_GRAPH
    return isinstance(node, ast.Attribute) and node.attr == "data"


def _inside(
    nodes: Iterable[ast.AST], closed: Callable[[ast.AST], bool] = _is_definition
) -> Iterator[ast.AST]:
    """Walk these nodes and what they hold, but for the inside of what is closed."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        if not closed(node):
            pending += ast.iter_child_nodes(node)


def _is_without_autograd(node: ast.AST) -> bool:
    """Tell whether it is a ``with torch.no_grad()``, a function decorated so, or one that calls ``set_grad_enabled``."""
    switches: list[ast.expr] = []
    if isinstance(node, (ast.With, ast.AsyncWith)):
        switches = [item.context_expr for item in node.items]
    elif isinstance(node, _FUNCTIONS):
        if any(last_name(call.func) == "set_grad_enabled" for call in _calls(node)):
            return True
        switches = node.decorator_list
    return any(last_name(getattr(item, "func", item)) in _WITHOUT_AUTOGRAD for item in switches)


def unhashable_defaults(code: Code) -> list[int]:
    """Return the lines of dataclass fields whose default is an instance of another dataclass of the file that cannot be hashed.

    Python 3.11 refuses them ("mutable default"); before, only lists, dicts and sets were refused. A dataclass cannot be
    hashed unless it is frozen, says ``eq=False`` or ``unsafe_hash=True``, or has a ``__hash__`` of its own.
    """
    fields: list[ast.stmt] = []
    unhashable: set[str] = set()
    for node in code.nodes:
        for decorator in getattr(node, "decorator_list", ()):
            function = getattr(decorator, "func", decorator)
            if not isinstance(node, ast.ClassDef) or last_name(function) != "dataclass":
                continue
            fields += node.body
            # None: computed, and may be True
            options: dict[str | None, object] = {"frozen": False, "unsafe_hash": False, "eq": True}
            for keyword in getattr(decorator, "keywords", ()):
                options[keyword.arg] = getattr(keyword.value, "value", None)
            may_be_hashed = any(options[name] is not False for name in ("frozen", "unsafe_hash"))
            has_hash = any(getattr(item, "name", "") == "__hash__" for item in node.body)
            if options["eq"] and not (has_hash or may_be_hashed):
                unhashable.add(node.name)
    lines = []
    for field in fields:
        if not isinstance(field, ast.AnnAssign):
            continue
        value = field.value
        # of ``Settings()``, and of ``field(default=Settings())``
        if isinstance(value, ast.Call) and last_name(value.func) == "field":
            value = keyword_value(value, "default")
        is_shared = "ClassVar" in map(last_name, ast.walk(field.annotation))
        if isinstance(value, ast.Call) and last_name(value.func) in unhashable and not is_shared:
            lines.append(field.lineno)
    return lines


def tuple_loads(code: Code) -> list[int]:
    """Return the lines of ``(model_params, first_iter) = torch.load(checkpoint)`` without ``weights_only``.

    torch 2.6 and newer may refuse such a file. Inria's family saves tuples so: parameters, counters and the optimizer's
    state, whose learning rates are NumPy's. A file that is loaded whole (``state = torch.load(path)``) is mostly of tensors
    alone, which torch still takes.
    """
    lines = []
    for node in code.nodes:
        match node:
            case ast.Assign(targets=targets, value=ast.Call(func=function, keywords=keywords)):
                is_unpacked = any(isinstance(target, (ast.Tuple, ast.List)) for target in targets)
                given = {keyword.arg for keyword in keywords}
                # None: a ``**mapping``, which may hold anything
                decides = None in given or given & _DECIDES_ON_PICKLES
                if is_unpacked and not decides and ast.unparse(function) == "torch.load":
                    lines.append(node.lineno)
    return lines


_BY_SHAPE: Mapping[str, tuple[str, bool, Callable[[Code], list[int]]]] = {
    "dataclass(default=unhashable)": ("dataclass", True, unhashable_defaults),
    "torch.load(tuple)": ("torch.load", False, tuple_loads),
    "evaluation with autograd": ("psnr", False, evaluations_with_autograd),
    "images kept on the GPU": ("cuda", False, images_kept_on_the_gpu),
    "losses kept with their graphs": (".backward(", False, graphs_kept),
    "cache emptied in the loop": ("empty_cache", False, cache_emptied_in_the_loop),
}
"""By the name that a breakage has for it: a text without which a file need not be looked at; whether the code breaks when its
file is imported; and who finds the lines."""


def source_patterns() -> tuple[SourcePattern | NamePattern, ...]:
    """List what a checkout's sources are to be searched for, so that the checks can judge them."""
    patterns: list[SourcePattern | NamePattern] = []
    code_of = lru_cache(maxsize=1)(Code)  # a file is walked once for all that is looked for in it
    for breakage in breakages():
        if breakage.look_for:
            patterns.append(breakage.look_for)
        if breakage.uses:
            patterns.append(by_shape(breakage.uses, code_of))
    return tuple(patterns)


def by_shape(pattern: NamePattern, code_of: Callable[[ast.Module], Code] = Code) -> NamePattern:
    """Return what is looked for where the name stands for code that no name tells; else the same pattern."""
    name = next(iter(pattern.names))
    if name not in _BY_SHAPE:
        return pattern
    mention, at_import, find = _BY_SHAPE[name]

    def find_lines(tree: ast.Module) -> list[int]:
        return find(code_of(tree))

    return ShapePattern(pattern.key, pattern.names, mention, at_import, find_lines)
