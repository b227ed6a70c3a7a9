"""What is taken at most of what others wrote or say: one table, each number with its reason."""

LONGEST_OUTPUT_LINE = 1 << 16
"""Bytes. A longer line of a container's output is taken in parts of about this length."""
MOST_LOG = 256 << 20
"""Characters of a container's output that its log keeps. A certification says a few MiB."""
MOST_REPORT = 1 << 30
"""Bytes of a report in a container, mostly its images and models."""
MOST_REPORT_FILES = 20_000
"""Files of it. One of a large suite has some hundreds."""
