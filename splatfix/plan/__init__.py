"""From facts and a goal to options: ordered lists of typed steps with reasons, or rejected with the reason.

``plan_install`` plans one installation of given sources; ``find_options`` ranks every option for the whole machine.
"""

from splatfix.model.option import (
    NO_SOURCES,
    Advice,
    AlsoNeeded,
    InstallPlan,
    LaneSummary,
    Option,
    OptionKind,
    Options,
    Request,
    SourceSummary,
)
from splatfix.model.steps import (
    BuildWheel,
    CheckImport,
    EditSource,
    InstallStep,
    InstallWheel,
    ProvideToolkit,
    VerifyWheel,
)
from splatfix.plan.checkout import has_stack_files
from splatfix.plan.options import advised_options, find_options, plan_install, summarise
