"""What a certification says that a person stopped: nothing was shown, and where the part that had run lies."""

from __future__ import annotations

from pathlib import Path


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, with a sentence for the person."""

    def __init__(self, out: Path | None = None, begun: tuple[str, ...] = ()) -> None:
        left = [name for name in begun if out is not None and (out / name).is_dir()]
        words = "Interrupted: nothing was certified or refused."
        if left:
            words += f" There is no certificate; what {', '.join(left)} left so far lies in {out}."
        super().__init__(words)
