"""``python -m tools.audit``: known vulnerabilities of every installed package, by pip-audit, and what could not be asked.

Exit codes: 0 none are known, 1 some are, 3 the vulnerability service gave no answer, so nothing was audited.
"""

import json
import sys
from typing import Any

from splatfix.core.errors import Exit
from splatfix.core.runner import Completed, Runner
from splatfix.core.words import few

_COMMAND = ("-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable")
_TIMEOUT = 300.0
_SHOWN = 8


def main() -> int:
    """Audit the environment that runs this."""
    code, lines = judge(Runner().run([sys.executable, *_COMMAND], timeout=_TIMEOUT))
    print("\n".join(lines))
    return code


def judge(done: Completed) -> tuple[Exit, list[str]]:
    """What pip-audit's answer means, and the lines that say so."""
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Exit.UNDETERMINED, [f"NOT AUDITED: pip-audit gave no answer: {done.why()}"]
    # pip-audit itself succeeds when it could ask about none of them
    audited = [package for package in packages if "skip_reason" not in package]
    skipped = [package for package in packages if "skip_reason" in package]
    lines = []
    for package in audited:
        for problem in package["vulns"]:
            fixed = ", ".join(problem["fix_versions"]) or "no version"
            lines.append(f"{package['name']} {package['version']}: {problem['id']}, fixed in {fixed}")
    code = Exit.UNDETERMINED
    if lines:
        code = Exit.FAILURE
    elif audited:
        code = Exit.OK
    if skipped:
        names = few([package["name"] for package in skipped], _SHOWN)
        lines.append(f"NOT AUDITED: {names}: {skipped[0]['skip_reason']}")
    lines.append(f"{len(audited)} of {len(packages)} packages were audited")
    return code, lines


if __name__ == "__main__":
    sys.exit(main())
