"""From facts and a goal to plans: ordered lists of typed steps with reasons, or rejected with the reason.

``rank`` ranks every option of a case, ``best`` makes the plan for the sources of its request, which ``install`` executes.
"""

from splatfix.model.option import NO_SOURCES, OptionKind, Options, Plan, Request, SourceSummary
from splatfix.model.steps import BuildWheel, EditSource, InstallWheel, ProvideToolkit
from splatfix.plan.case import Case
from splatfix.plan.checkout import has_stack_files
from splatfix.plan.dropins import summarise
from splatfix.plan.rank import Ranking, advised_options, best, rank, rank_request
