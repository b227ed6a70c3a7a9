"""How long a person waits: `splatfix --help` against an empty typer app, a whole diagnosis against torch's own report.

    python tests/benchmarks/bench_diagnose.py [--python ENV_PYTHON] [--json FILE] [--rounds N]

Each pair is started in turns in the same run, each start a fresh process; the median of the rounds counts. The peer of
`--help` is an app of two commands that do nothing, written here, run by the same interpreter the same way. The peer of
`diagnose` is `python -m torch.utils.collect_env` in the diagnosed environment, which must hold torch: --python, else
SPLATFIX_NATIVE_PYTHON, else the running one. Of many packages diagnose reads the native files, a peer does not: the limit
is another above MANY_PACKAGES.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import measuring
from measuring import conditions, keep

HELP_AT_MOST, DIAGNOSE_AT_MOST, OF_MANY_AT_MOST = 1.3, 0.15, 0.25
MANY_PACKAGES = 50
COUNT_PACKAGES = "import importlib.metadata as m; print(len(list(m.distributions())))"

EMPTY_APP = '''\
"""A typer app of two commands that do nothing."""
import typer

app = typer.Typer(name="empty", help="An empty app.", no_args_is_help=True, add_completion=False,
                  pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def first() -> None:
    """Do nothing."""


@app.command()
def second() -> None:
    """Do nothing either."""


if __name__ == "__main__":
    app(prog_name="empty")
'''


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measuring.parser(__doc__, rounds=5)
    parser.add_argument("--python", help="interpreter of the environment to diagnose; it must hold torch")
    return parser.parse_args(arguments)


def timed(argv: Sequence[str], allowed: tuple[int, ...] = (0,)) -> float:
    """Seconds of one run; a failed run would be a wrong number. Bytecode is kept, as for anything that pip installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return measuring.run(argv, allowed, kept).seconds


def compared(
    ours: Sequence[str], peers: Sequence[str], rounds: int, allowed: tuple[int, ...]
) -> dict[str, float]:
    """Medians of both and the median of the ratios within each round, after one unmeasured start of each."""
    timed(ours, allowed)
    timed(peers)
    pairs = [(timed(ours, allowed), timed(peers)) for _ in range(rounds)]
    return {
        "ours_s": statistics.median(pair[0] for pair in pairs),
        "peer_s": statistics.median(pair[1] for pair in pairs),
        "ratio": statistics.median(pair[0] / pair[1] for pair in pairs),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    python = options.python or os.environ.get("SPLATFIX_NATIVE_PYTHON") or sys.executable
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "empty_app"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(EMPTY_APP)
        # both as a package run by -m, with byte code already there
        script = f"import sys, runpy; sys.path.insert(0, {folder!r}); runpy.run_module('empty_app', run_name='__main__')"
        ours_help = "import sys, runpy; runpy.run_module('splatfix', run_name='__main__', alter_sys=True)"
        help_times = compared(
            [sys.executable, "-c", ours_help, "--help"],
            [sys.executable, "-c", script, "--help"],
            options.rounds,
            (0,),
        )
    diagnose = compared(
        [sys.executable, "-m", "splatfix", "diagnose", "--json", "--python", python],
        [python, "-m", "torch.utils.collect_env"],
        options.rounds,
        (0, 1, 3),
    )
    packages = int(subprocess.check_output([python, "-c", COUNT_PACKAGES]))
    diagnose_at_most = DIAGNOSE_AT_MOST
    if packages > MANY_PACKAGES:
        diagnose_at_most = OF_MANY_AT_MOST
    result = {
        "python": python,
        "packages": packages,
        "rounds": options.rounds,
        **conditions("torch"),
        "help": {**help_times, "at_most": HELP_AT_MOST, "met": help_times["ratio"] <= HELP_AT_MOST},
        "diagnose": {**diagnose, "at_most": diagnose_at_most, "met": diagnose["ratio"] <= diagnose_at_most},
    }
    print(
        f"environment: {python}; {options.rounds} rounds; load {result['load']:.1f} on {result['cores']} cores"
    )
    for name, peer, part in (
        ("splatfix --help", "empty typer app", result["help"]),
        ("splatfix diagnose", "torch.utils.collect_env", result["diagnose"]),
    ):
        assert isinstance(part, dict)
        print(
            f"{name:18} {part['ours_s'] * 1000:8.0f} ms   {peer:24} {part['peer_s'] * 1000:8.0f} ms   "
            f"ratio {part['ratio']:.3f} (at most {part['at_most']})  {'met' if part['met'] else 'MISSED'}"
        )
    keep(result, options.json)
    is_met = help_times["ratio"] <= HELP_AT_MOST and diagnose["ratio"] <= diagnose_at_most
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
