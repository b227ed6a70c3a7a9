"""Checkpoints of a trainer that torch 2.6 and newer may refuse to load, found in a syntax tree."""

from __future__ import annotations

import ast

_DECIDED = frozenset({"weights_only", "pickle_module"})


def tuple_loads(tree: ast.Module) -> list[int]:
    """Lines of ``(model_params, first_iter) = torch.load(checkpoint)`` without ``weights_only``.

    Inria's family saves tuples so: parameters, counters and the optimizer's state, whose learning rates are NumPy's. A file
    that is loaded whole (``state = torch.load(path)``) is mostly of tensors alone, which torch still takes.
    """
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(item, (ast.Tuple, ast.List)) for item in node.targets)
        if isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "torch.load"
        and not _DECIDED & {item.arg or "" for item in node.value.keywords}
        and all(item.arg for item in node.value.keywords)
    ]
