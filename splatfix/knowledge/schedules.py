"""How a stack's own training is made short: which options of a trainer say when something happens (``data/schedules.toml``)."""

from collections.abc import Mapping

from msgspec import Struct

from splatfix.knowledge.rows import rows
from splatfix.knowledge.tables import table


class Setting(Struct, frozen=True):
    """What one option is given in a short training; one of the fields is set."""

    share: float | None = None
    """Of the iterations."""
    times: int = 1
    """The rounded share, so often."""
    saves: bool = False
    """The first iteration, and the last."""
    last: bool = False
    flag: bool = False

    def words(self, iterations: int) -> list[str]:
        """What follows the option on the command line."""
        if self.share is not None:
            return [str(self.times * max(1, round(self.share * iterations)))]
        if self.saves:
            return ["1", str(iterations)]
        if self.last:
            return [str(iterations)]
        return []


def short_schedule() -> Mapping[str, Setting]:
    """By option (``densify_from_iter``); an option counts only where a trainer has it."""
    return rows(Setting, "schedules", "options")


def words_for(stack_key: str) -> tuple[str, ...]:
    """What the trainer of one stack is told besides."""
    return tuple(table("schedules")["stacks"].get(stack_key, {}).get("words", ()))


def least_iterations(stack_key: str) -> int:
    """Below which a stack's short training shows nothing; 0 where that is not known."""
    return int(table("schedules")["stacks"].get(stack_key, {}).get("iterations", 0))
