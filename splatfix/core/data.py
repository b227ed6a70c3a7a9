"""The standard library's ``dataclass``, whose methods are written when a class is first used.

To write them takes half a millisecond a class (a handful of ``exec``), and a command imports far more than it uses.
"""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

_LOCK = threading.RLock()  # of all classes: one is finished with those that it derives from


def _made(kind: type, /, *_: Any, **__: Any) -> Any:
    """``__new__`` of what is finished: to delete ours would leave one that takes no arguments."""
    return object.__new__(kind)


class _Unfinished:
    """Stands at ``__dataclass_fields__`` until the class is used: made, or asked for its fields."""

    def __init__(self, kind: type, options: dict[str, Any]) -> None:
        self._kind, self._options = kind, options

    def __get__(self, instance: object, owner: type) -> Any:
        self.finish()
        return self._kind.__dict__["__dataclass_fields__"]

    def finish(self) -> None:
        """Write the methods, unless another thread just did."""
        with _LOCK:
            if self._kind.__dict__["__dataclass_fields__"] is self:
                dataclasses.dataclass(**self._options)(self._kind)
                self._kind.__new__ = _made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(kind: type | None = None, /, **options: Any) -> Any:
        """As the standard library's."""

        def prepared(kind: type) -> type:
            # slots need another class, and what a parent makes of the arguments is not known here
            if options.get("slots") or kind.__new__ is not object.__new__:
                return dataclasses.dataclass(**options)(kind)
            unfinished = _Unfinished(kind, options)

            def new(made: type, /, *_: Any, **__: Any) -> Any:
                unfinished.finish()
                return object.__new__(made)

            kind.__new__ = new
            # in place of its signature, which takes longest of all
            kind.__doc__ = kind.__doc__ or kind.__name__
            kind.__dataclass_fields__ = unfinished
            return kind

        return prepared if kind is None else prepared(kind)
