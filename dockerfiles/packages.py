"""Prints what pip installed, ``name==version --hash=sha256:...`` a line, from ``pip install --report``."""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = json.load(file)["install"]
for row in sorted(rows, key=lambda item: item["metadata"]["name"].lower()):
    digest = row["download_info"].get("archive_info", {}).get("hash", "").replace("=", ":")
    print("{name}=={version}".format(**row["metadata"]) + (" --hash={}".format(digest) if digest else ""))
