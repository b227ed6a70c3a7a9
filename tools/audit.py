"""``python -m tools.audit``: known vulnerabilities of every installed package, by pip-audit, and what could not be asked.

Exit codes: 0 none are known, 1 some are, 3 the vulnerability service gave no answer, so nothing was audited.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from splatfix.core.errors import Exit
from splatfix.core.runner import Completed, ProcessRunner

_COMMAND = ("-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable")
_TIMEOUT = 300.0
_SHOWN = 8


def main() -> int:
    """Audit the environment that runs this."""
    code, lines = judge(ProcessRunner().run([sys.executable, *_COMMAND], timeout=_TIMEOUT))
    print("\n".join(lines))
    return code


def judge(done: Completed) -> tuple[Exit, list[str]]:
    """What pip-audit's answer means, and the lines that say so."""
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Exit.UNDETERMINED, [f"NOT AUDITED: pip-audit gave no answer: {done.why()}"]
    # pip-audit itself succeeds when it could ask about none of them
    asked = [package for package in packages if "skip_reason" not in package]
    skipped = [package for package in packages if "skip_reason" in package]
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for package in asked
        for found in package["vulns"]
    ]
    code = Exit.FAILURE if lines else Exit.OK if asked else Exit.UNDETERMINED
    if skipped:
        names = ", ".join(package["name"] for package in skipped[:_SHOWN])
        more = f" and {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
        lines.append(f"NOT AUDITED: {names}{more}: {skipped[0]['skip_reason']}")
    lines.append(f"{len(asked)} of {len(packages)} packages were audited")
    return code, lines


if __name__ == "__main__":
    sys.exit(main())
