"""Code that a newer Python or torch refuses, and habits of trainers that cost memory and time, told by the shape of the syntax
tree; nothing is executed.

Each function gives the lines of one of them. A training loop is one in which a ``backward`` is called. What a reader cannot
tell from the file alone is left out: a function that other files call may be called without autograd there.
"""

import ast
from collections.abc import Callable, Iterator, Mapping

from splatfix.facts.source.syntax import keyword_value, last_name

_DECIDES_ON_PICKLES = frozenset({"weights_only", "pickle_module"})
_LOOPS = (ast.For, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITHOUT_AUTOGRAD = frozenset({"no_grad", "inference_mode"})
_METRICS = frozenset({"psnr", "ssim", "lpips", "lpips_fn", "l1_loss", "fused_ssim"})
_RENDERERS = ("render", "raster")
_ENDS_THE_GRAPH = frozenset({"item", "detach", "tolist", "numpy", "cpu", "float"})


def evaluations_with_autograd(tree: ast.Module) -> list[int]:
    """Lines of loops that draw views and measure them with autograd on: every view keeps what its backward pass would need."""
    parents = _parents(tree)
    covered = _without_autograd(tree, parents)
    called = {last_name(call.func) for call in _calls(tree)}
    lines = []
    for loop in ast.walk(tree):
        if not isinstance(loop, _LOOPS) or _calls_backward(loop):
            continue
        function = next((node for node in _around(loop, parents) if isinstance(node, _FUNCTIONS)), None)
        if function is not None and not (function.name in called or _calls_backward(function)):
            continue  # who calls it, and how, is in another file
        names = {last_name(call.func) for call in _calls(loop) if covered.isdisjoint(_around(call, parents))}
        if _METRICS & names and any(name.lower().startswith(_RENDERERS) for name in names):
            lines.append(loop.lineno)
    return sorted(lines)


def images_kept_on_the_gpu(tree: ast.Module) -> list[int]:
    """Lines that keep a view's image on the GPU, whatever options say: ``self.original_image = image.cuda()``."""
    lines = []
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef) or not any(
            word in owner.name.lower() for word in ("camera", "view")
        ):
            continue
        for node in ast.walk(owner):
            if isinstance(node, ast.Assign) and _is_an_image(node.targets[0]) and _goes_to_cuda(node.value):
                lines.append(node.lineno)
    return sorted(lines)


def graphs_kept(tree: ast.Module) -> list[int]:
    """Lines in a training loop that add a loss with its graph to something from before the loop."""
    parents = _parents(tree)
    covered = _without_autograd(tree, parents)
    lines = []
    for loop in ast.walk(tree):
        if not isinstance(loop, _LOOPS):
            continue
        losses = {
            call.func.value.id
            for call in _calls(loop)
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "backward"
            and isinstance(call.func.value, ast.Name)
        }
        assignments = [node for node in _own(loop) if isinstance(node, ast.Assign)]
        targets = [target for node in assignments for target in node.targets]
        assigned = {target.id for target in targets if isinstance(target, ast.Name)}
        for node in _own(loop):
            target, value = _kept(node)
            if value is None or target is None or target in assigned or target in losses:
                continue
            if losses & _names_with_graph(value) and covered.isdisjoint(_around(node, parents)):
                lines.append(node.lineno)
    return sorted(set(lines))


def cache_emptied_in_the_loop(tree: ast.Module) -> list[int]:
    """Lines of ``torch.cuda.empty_cache()`` in each iteration of a training loop, under no condition."""
    lines = []
    for loop in ast.walk(tree):
        if isinstance(loop, _LOOPS) and _calls_backward(loop):
            for statement in _unconditional(loop.body):
                is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
                if is_call and last_name(statement.value.func) == "empty_cache":  # type: ignore[attr-defined]
                    lines.append(statement.lineno)
    return sorted(set(lines))


def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (item for item in ast.walk(node) if isinstance(item, ast.Call))


def _calls_backward(node: ast.AST) -> bool:
    return any(last_name(call.func) == "backward" for call in _calls(node))


def _own(loop: ast.For | ast.While) -> Iterator[ast.stmt]:
    """Statements of a loop that calls ``backward`` itself, and of what it holds; no function within."""
    pending: list[ast.AST] = list(loop.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)


def _unconditional(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, (ast.With, ast.Try)):
            yield from _unconditional(statement.body)


def _around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """Walk up through what it is in, the innermost first."""
    while node in parents:
        node = parents[node]
        yield node


def _turns_autograd_off(node: ast.AST) -> bool:
    """``torch.no_grad()`` or ``torch.inference_mode``, as a decorator or in a ``with``."""
    if isinstance(node, ast.Call):
        node = node.func
    return last_name(node) in _WITHOUT_AUTOGRAD


def _is_without_autograd(node: ast.AST) -> bool:
    """A ``with`` that turns it off, a function decorated so, or one that calls ``set_grad_enabled``."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return any(_turns_autograd_off(item.context_expr) for item in node.items)
    if isinstance(node, _FUNCTIONS):
        if any(map(_turns_autograd_off, node.decorator_list)):
            return True
        return any(last_name(call.func) == "set_grad_enabled" for call in _calls(node))
    return False


def _without_autograd(tree: ast.Module, parents: Mapping[ast.AST, ast.AST]) -> set[ast.AST]:
    """What has autograd off inside, and functions whose every call in the file is in such, and so on through their callers."""
    covered = {node for node in ast.walk(tree) if _is_without_autograd(node)}
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    calls: dict[str, list[ast.Call]] = {function.name: [] for function in functions}
    for call in _calls(tree):
        if (name := last_name(call.func)) in calls:
            calls[name].append(call)
    while True:
        more = []
        for function in functions:
            around = [_around(call, parents) for call in calls[function.name]]
            if function not in covered and around and not any(map(covered.isdisjoint, around)):
                more.append(function)
        if not more:
            return covered
        covered.update(more)


def _is_an_image(target: ast.expr) -> bool:
    if not isinstance(target, ast.Attribute):
        return False
    name = target.attr.lower()
    return "image" in name and not any(
        word in name for word in ("name", "path", "width", "height", "size", "id")
    )


def _goes_to_cuda(value: ast.expr) -> bool:
    """The last of what is done to it is ``.cuda()`` or ``.to("cuda")``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if value.func.attr == "cuda":
        return True
    arguments = [*value.args, *(keyword.value for keyword in value.keywords if keyword.arg == "device")]
    constants = [item.value for item in arguments if isinstance(item, ast.Constant)]
    return value.func.attr == "to" and any(str(constant).startswith("cuda") for constant in constants)


def _kept(node: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """What is added to, and what is added: of ``total += loss`` and ``losses.append(loss)``."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target.id, node.value
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr == "append" and node.value.args:
            return ast.unparse(function.value), node.value.args[0]
    return None, None


def _names_with_graph(value: ast.expr) -> set[str]:
    """Names in it but those of which only numbers are taken, as by ``loss.item()``."""
    names: set[str] = set()
    pending: list[ast.AST] = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and last_name(node.func) in _ENDS_THE_GRAPH:
            continue
        if isinstance(node, ast.Attribute) and node.attr == "data":
            continue
        if isinstance(node, ast.Name):
            names.add(node.id)
        pending += ast.iter_child_nodes(node)
    return names


def unhashable_defaults(tree: ast.Module) -> list[int]:
    """Return the lines of dataclass fields whose default is an instance of another dataclass of the file that cannot be hashed.

    Python 3.11 refuses them ("mutable default"); before, only lists, dicts and sets were refused. A dataclass cannot be
    hashed unless it is frozen, says ``eq=False`` or ``unsafe_hash=True``, or has a ``__hash__`` of its own.
    """
    dataclasses: list[ast.ClassDef] = []
    unhashable: set[str] = set()
    for node in ast.walk(tree):
        for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(node, ast.ClassDef) and last_name(function) == "dataclass":
                dataclasses.append(node)
                if not _is_hashable(node, decorator):
                    unhashable.add(node.name)
    lines = []
    for dataclass in dataclasses:
        for field in dataclass.body:
            value = field.value if isinstance(field, ast.AnnAssign) else None
            # of ``Settings()``, and of ``field(default=Settings())``
            if isinstance(value, ast.Call) and last_name(value.func) == "field":
                value = keyword_value(value, "default")
            if not isinstance(field, ast.AnnAssign) or not isinstance(value, ast.Call):
                continue
            if last_name(value.func) in unhashable and not any(
                last_name(part) == "ClassVar" for part in ast.walk(field.annotation)
            ):
                lines.append(field.lineno)
    return lines


def tuple_loads(tree: ast.Module) -> list[int]:
    """Return the lines of ``(model_params, first_iter) = torch.load(checkpoint)`` without ``weights_only``.

    torch 2.6 and newer may refuse such a file. Inria's family saves tuples so: parameters, counters and the optimizer's
    state, whose learning rates are NumPy's. A file that is loaded whole (``state = torch.load(path)``) is mostly of tensors
    alone, which torch still takes.
    """
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        is_unpacked = any(isinstance(target, (ast.Tuple, ast.List)) for target in node.targets)
        if not is_unpacked or ast.unparse(node.value.func) != "torch.load":
            continue
        keywords = {keyword.arg for keyword in node.value.keywords}
        # None: a ``**mapping``, which may hold anything
        if None not in keywords and not keywords & _DECIDES_ON_PICKLES:
            lines.append(node.lineno)
    return lines


def _is_hashable(node: ast.ClassDef, decorator: ast.expr) -> bool:
    if any(isinstance(item, ast.FunctionDef) and item.name == "__hash__" for item in node.body):
        return True
    options: dict[str | None, object] = {}
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        options[keyword.arg] = getattr(keyword.value, "value", None)  # None: computed, and may be True
    may_be_frozen = any(options.get(name, False) is not False for name in ("frozen", "unsafe_hash"))
    return may_be_frozen or not options.get("eq", True)


BY_SHAPE: Mapping[str, tuple[str, bool, Callable[[ast.Module], list[int]]]] = {
    "dataclass(default=unhashable)": ("dataclass", True, unhashable_defaults),
    "torch.load(tuple)": ("torch.load", False, tuple_loads),
    "evaluation with autograd": ("psnr", False, evaluations_with_autograd),
    "images kept on the GPU": ("cuda", False, images_kept_on_the_gpu),
    "losses kept with their graphs": (".backward(", False, graphs_kept),
    "cache emptied in the loop": ("empty_cache", False, cache_emptied_in_the_loop),
}
"""What a NamePattern asks for to be told of them: a text without which a file need not be looked at, whether the code breaks at
the import, and who finds its lines."""
