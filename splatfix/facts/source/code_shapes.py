"""Code that a newer Python or torch refuses, and habits of trainers that cost memory and time, told by the shape of the syntax
tree; nothing is executed.

Each function gives the lines of one of them. A training loop is one in which a ``backward`` is called. What a reader cannot
tell from the file alone is left out: a function that other files call may be called without autograd there.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from splatfix.facts.source.syntax import keyword_value, last_name

_DECIDES_ON_PICKLES = frozenset({"weights_only", "pickle_module"})
_LOOPS = (ast.For, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITHOUT_AUTOGRAD = frozenset({"no_grad", "inference_mode"})
_METRICS = frozenset({"psnr", "ssim", "lpips", "lpips_fn", "l1_loss", "fused_ssim"})
_RENDERERS = ("render", "raster")
_ENDS_THE_GRAPH = frozenset({"item", "detach", "tolist", "numpy", "cpu", "float"})
_NO_IMAGE = ("name", "path", "width", "height", "size", "id")


def evaluations_with_autograd(tree: ast.Module) -> list[int]:
    """Lines of loops that draw views and measure them with autograd on: every view keeps what its backward pass would need."""
    parents = _parents(tree)
    covered = _without_autograd(tree, parents)
    called = {last_name(call.func) for call in _calls(tree)}
    lines = []
    for loop in _loops(tree):
        function = next((node for node in _around(loop, parents) if isinstance(node, _FUNCTIONS)), None)
        # who calls it, and how, is in another file
        unseen = function and not (function.name in called or _calls_backward(function))
        if not unseen and not _calls_backward(loop):
            calls = (call for call in _calls(loop) if covered.isdisjoint(_around(call, parents)))
            names = {last_name(call.func) for call in calls}
            if _METRICS & names and any(name.lower().startswith(_RENDERERS) for name in names):
                lines.append(loop.lineno)
    return sorted(lines)


def images_kept_on_the_gpu(tree: ast.Module) -> list[int]:
    """Lines that keep a view's image on the GPU, whatever options say: ``self.original_image = image.cuda()``."""
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    views = [node for node in classes if any(word in node.name.lower() for word in ("camera", "view"))]
    lines = []
    for node in (node for view in views for node in ast.walk(view)):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(attr=name), *_], value=ast.Call(func=ast.Attribute(attr=last)) as call
            ):
                # the last of what is done to it is ``.cuda()`` or ``.to("cuda")``
                places = [
                    getattr(item, "value", None) for item in (*call.args, keyword_value(call, "device"))
                ]
                on_gpu = last == "cuda" or (
                    last == "to" and any(str(place).startswith("cuda") for place in places)
                )
                if on_gpu and "image" in name.lower() and not any(word in name.lower() for word in _NO_IMAGE):
                    lines.append(node.lineno)
    return sorted(lines)


def graphs_kept(tree: ast.Module) -> list[int]:
    """Lines in a training loop that add a loss with its graph to something from before the loop."""
    parents = _parents(tree)
    covered = _without_autograd(tree, parents)
    lines = set()
    for loop in _loops(tree):
        statements = [node for node in _inside(loop.body) if isinstance(node, ast.stmt)]
        targets = (target for node in statements if isinstance(node, ast.Assign) for target in node.targets)
        assigned = {target.id for target in targets if isinstance(target, ast.Name)}
        called = [
            getattr(call.func, "value", None) for call in _calls(loop) if last_name(call.func) == "backward"
        ]
        losses = {owner.id for owner in called if isinstance(owner, ast.Name)}
        for node in statements:
            match node:
                case ast.AugAssign(target=ast.Name(id=kept), value=value):
                    pass
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[value, *_])
                ):
                    kept = ast.unparse(owner)
                case _:
                    continue
            # all of it but that of which only numbers are taken, as by ``loss.item()``
            names = {item.id for item in _inside([value], _is_number) if isinstance(item, ast.Name)}
            if (
                kept not in assigned | losses
                and losses & names
                and covered.isdisjoint(_around(node, parents))
            ):
                lines.add(node.lineno)
    return sorted(lines)


def cache_emptied_in_the_loop(tree: ast.Module) -> list[int]:
    """Lines of ``torch.cuda.empty_cache()`` in each iteration of a training loop, under no condition."""
    lines = set()
    for loop in filter(_calls_backward, _loops(tree)):
        statements = list(loop.body)
        for statement in statements:  # which grows
            match statement:
                case ast.With(body=body) | ast.Try(body=body):
                    statements += body
                case ast.Expr(value=ast.Call(func=function)) if last_name(function) == "empty_cache":
                    lines.add(statement.lineno)
    return sorted(lines)


def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def _around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """Walk up through what it is in, the innermost first."""
    while node in parents:
        node = parents[node]
        yield node


def _loops(tree: ast.Module) -> Iterator[ast.For | ast.While]:
    return (node for node in ast.walk(tree) if isinstance(node, _LOOPS))


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
    """A ``with torch.no_grad()``, a function decorated so, or one that calls ``set_grad_enabled``."""
    switches: list[ast.expr] = []
    if isinstance(node, (ast.With, ast.AsyncWith)):
        switches = [item.context_expr for item in node.items]
    elif isinstance(node, _FUNCTIONS):
        if any(last_name(call.func) == "set_grad_enabled" for call in _calls(node)):
            return True
        switches = node.decorator_list
    return any(last_name(getattr(item, "func", item)) in _WITHOUT_AUTOGRAD for item in switches)


def _without_autograd(tree: ast.Module, parents: Mapping[ast.AST, ast.AST]) -> set[ast.AST]:
    """What has autograd off inside, and functions whose every call in the file is in such, and so on through their callers."""
    covered = set(filter(_is_without_autograd, ast.walk(tree)))
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    calls: dict[str, list[ast.Call]] = {function.name: [] for function in functions}
    for call in _calls(tree):
        if (name := last_name(call.func)) in calls:
            calls[name].append(call)
    while True:
        before = len(covered)
        for function in functions:
            around = [_around(call, parents) for call in calls[function.name]]
            if around and not any(map(covered.isdisjoint, around)):
                covered.add(function)
        if len(covered) == before:
            return covered


def unhashable_defaults(tree: ast.Module) -> list[int]:
    """Return the lines of dataclass fields whose default is an instance of another dataclass of the file that cannot be hashed.

    Python 3.11 refuses them ("mutable default"); before, only lists, dicts and sets were refused. A dataclass cannot be
    hashed unless it is frozen, says ``eq=False`` or ``unsafe_hash=True``, or has a ``__hash__`` of its own.
    """
    dataclasses: list[ast.ClassDef] = []
    unhashable: set[str] = set()
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for decorator in node.decorator_list:
            if last_name(getattr(decorator, "func", decorator)) == "dataclass":
                dataclasses.append(node)
                options: dict[str | None, object] = {}
                for keyword in getattr(decorator, "keywords", ()):
                    options[keyword.arg] = getattr(
                        keyword.value, "value", None
                    )  # None: computed, and may be True
                may_be_frozen = any(
                    options.get(name, False) is not False for name in ("frozen", "unsafe_hash")
                )
                has_hash = any(getattr(item, "name", "") == "__hash__" for item in node.body)
                if not (has_hash or may_be_frozen or not options.get("eq", True)):
                    unhashable.add(node.name)
    lines = []
    for item in (item for node in dataclasses for item in node.body if isinstance(item, ast.AnnAssign)):
        value = item.value
        # of ``Settings()``, and of ``field(default=Settings())``
        if isinstance(value, ast.Call) and last_name(value.func) == "field":
            value = keyword_value(value, "default")
        is_shared = any(last_name(part) == "ClassVar" for part in ast.walk(item.annotation))
        if isinstance(value, ast.Call) and last_name(value.func) in unhashable and not is_shared:
            lines.append(item.lineno)
    return lines


def tuple_loads(tree: ast.Module) -> list[int]:
    """Return the lines of ``(model_params, first_iter) = torch.load(checkpoint)`` without ``weights_only``.

    torch 2.6 and newer may refuse such a file. Inria's family saves tuples so: parameters, counters and the optimizer's
    state, whose learning rates are NumPy's. A file that is loaded whole (``state = torch.load(path)``) is mostly of tensors
    alone, which torch still takes.
    """
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=ast.Call(func=function, keywords=keywords)):
                is_unpacked = any(isinstance(target, (ast.Tuple, ast.List)) for target in targets)
                given = {keyword.arg for keyword in keywords}
                # None: a ``**mapping``, which may hold anything
                decides = None in given or given & _DECIDES_ON_PICKLES
                if is_unpacked and not decides and ast.unparse(function) == "torch.load":
                    lines.append(node.lineno)
    return lines


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
