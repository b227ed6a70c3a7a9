"""What is printed on a terminal, without one."""

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console


def on_screen(draw: Callable[..., object], *subjects: Any, width: int = 80, **options: Any) -> str:
    """What ``draw(console, *subjects, **options)`` prints on a terminal of so many columns, without its colours."""
    stream = io.StringIO()
    draw(Console(file=stream, width=width, color_system=None, highlight=False), *subjects, **options)
    return stream.getvalue()
