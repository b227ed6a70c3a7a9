"""What a reader who never saw a certificate needs, from ``wording.toml``: what a verdict means, and a few words explained."""

from splatfix.certify.model import Criterion, Verdict
from splatfix.core.toml import table_beside

_TEXTS = table_beside(__file__)

MEANS: dict[Verdict, str] = {Verdict(name): text for name, text in _TEXTS["verdicts"].items()}
MEANS_WITHOUT_TRAINING: dict[int, str] = {int(level): text for level, text in _TEXTS["run_levels"].items()}
"""What a passed run level below the training ones means."""
LEVEL_MEANS: dict[str, str] = _TEXTS["levels"]
LEVEL_MEANS_ON_THE_CPU: dict[str, str] = _TEXTS["levels_on_the_cpu"]
HELD_OUT: str = _TEXTS["held_out"]
SLIDE: str = _TEXTS["slide"]
"""How to look at a picture on a screen; left out on paper, where both are whole."""
RESULTS: tuple[str, ...] = tuple(_TEXTS["results"])
"""The columns of a scene's results; the scene and its result come before."""
RESULTS_LEGEND: str = _TEXTS["results_legend"]
KERNELS_NOTE: str = _TEXTS["kernels"]
SHORT_RUN: str = _TEXTS["short_run"]
GLOSSARY: tuple[tuple[str, str], ...] = tuple(_TEXTS["glossary"].items())


def title_of(criterion: Criterion) -> str:
    """Return a criterion's statement; of a check what it asks for, because the codes of checks name problems."""
    return criterion.title or criterion.required
