"""Code that a newer Python or torch refuses, or that costs memory and time, told by the shape of its syntax tree; nothing is
executed."""

import ast
from collections.abc import Callable, Mapping

from splatfix.facts.source import trainer_code
from splatfix.facts.source.syntax import keyword_value, last_name

_DECIDES_ON_PICKLES = frozenset({"weights_only", "pickle_module"})


def unhashable_defaults(tree: ast.Module) -> list[int]:
    """Lines of dataclass fields whose default is an instance of another dataclass of the file that cannot be hashed.

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
    """Lines of ``(model_params, first_iter) = torch.load(checkpoint)`` without ``weights_only``.

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


BY_SHAPE: Mapping[str, tuple[str, bool, Callable[[ast.Module], list[int]]]] = {
    "dataclass(default=unhashable)": ("dataclass", True, unhashable_defaults),
    "torch.load(tuple)": ("torch.load", False, tuple_loads),
    "evaluation with autograd": ("psnr", False, trainer_code.evaluations_with_autograd),
    "images kept on the GPU": ("cuda", False, trainer_code.images_kept_on_the_gpu),
    "losses kept with their graphs": (".backward(", False, trainer_code.graphs_kept),
    "cache emptied in the loop": ("empty_cache", False, trainer_code.cache_emptied_in_the_loop),
}
"""What a NamePattern asks for to be told of them: a text without which a file need not be looked at, whether the code breaks at
the import, and who finds its lines."""


def _is_hashable(node: ast.ClassDef, decorator: ast.expr) -> bool:
    if any(isinstance(item, ast.FunctionDef) and item.name == "__hash__" for item in node.body):
        return True
    options: dict[str | None, object] = {}
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        options[keyword.arg] = getattr(keyword.value, "value", None)  # None: computed, and may be True
    may_be_frozen = any(options.get(name, False) is not False for name in ("frozen", "unsafe_hash"))
    return may_be_frozen or not options.get("eq", True)
