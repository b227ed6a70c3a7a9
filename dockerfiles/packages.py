"""Prints what pip installed, ``name==version --hash=sha256:...`` a line, from ``pip install --report``."""

import json
import sys
from pathlib import Path

rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["install"]
for row in sorted(rows, key=lambda item: item["metadata"]["name"].lower()):
    digest = row["download_info"].get("archive_info", {}).get("hash", "").replace("=", ":")
    told = row["metadata"]
    print(f"{told['name']}=={told['version']}" + (f" --hash={digest}" if digest else ""))  # noqa: T201
