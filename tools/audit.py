"""``python -m tools.audit``: known vulnerabilities of every installed package, by pip-audit, and what could not be asked.

Exit codes: 0 none are known, 1 some are, 3 the vulnerability service gave no answer, so nothing was audited.
"""

import json
import sys
from typing import Any

from splatfix.core.errors import Exit
from splatfix.core.runner import Completed, Runner

_COMMAND = ("-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable")


def judge(done: Completed) -> Exit:
    """What pip-audit's answer means, which is printed; it succeeds itself when it could ask about none of them."""
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        print(f"NOT AUDITED: pip-audit gave no answer: {done.why()}")
        return Exit.UNDETERMINED
    problems = [(package, problem) for package in packages for problem in package.get("vulns", ())]
    for package, problem in problems:
        fixed = ", ".join(problem["fix_versions"]) or "no version"
        print(f"{package['name']} {package['version']}: {problem['id']}, fixed in {fixed}")
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    print(f"NOT AUDITED of {len(packages)}: {', '.join(skipped) or 'none'}")
    if problems:
        return Exit.FAILURE
    return Exit.OK if len(skipped) < len(packages) else Exit.UNDETERMINED


if __name__ == "__main__":
    sys.exit(judge(Runner().run([sys.executable, *_COMMAND], timeout=300.0)))
