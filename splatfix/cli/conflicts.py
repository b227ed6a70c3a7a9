"""Options that do not go together: ``conflicts.toml`` has a table for each command."""

from collections.abc import Set
from typing import Any

from splatfix.core.errors import usage_error
from splatfix.core.step import step_of
from splatfix.core.toml import table_beside

COMMAND = "a command"
"""What ``explain`` is given after ``--``, which is no parameter."""


def refuse(context: Any, also_given: Set[str] = frozenset()) -> None:
    """Stop at the first conflict among what was given.

    Args:
        context: typer's, of a command whose words are parsed.
        also_given: what was given besides the command's parameters, under the names of the table.

    Raises:
        SplatfixError: with the conflict's code (exit code 2).
    """
    tables = table_beside(__file__)
    # what has another value than without it: who writes a default out has changed nothing
    given = set(also_given)
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        if not value or value == parameter.default:
            continue
        # an option is named as it is typed, an argument as its help calls it: ``[LOG|-]`` is ``LOG``
        if parameter.param_type_name == "option":
            given.add(str(parameter.opts[0]))
        else:
            given.add(str(parameter.metavar).strip("[]").partition("|")[0])
    for row in tables[context.info_name]:
        if row.get("beside") and given.isdisjoint(row["beside"]):
            continue
        if not given.isdisjoint(row.get("unless", ())):
            continue
        refused = [name for name in row["refused"] if name in given]
        if refused:
            values = {**context.params, "options": ", ".join(refused)}
            todo = (step_of(item, named=values) for item in row.get("todo", ()))
            raise usage_error(row["code"], row["what"].format_map(values), *todo)
