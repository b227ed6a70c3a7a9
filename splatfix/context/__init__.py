"""Facts and goal: the one place that says which GPUs, driver level, toolkit, compiler and torch are in play."""

from splatfix.context.context import Context, make_context
from splatfix.context.model import Choice, Goal, NotHere, NoToolkit, OtherOption, Target, UnknownArch
