"""What is taken at most of what others wrote or say: one table, each number with its reason."""

MOST_TEXT = 16 << 20
"""Bytes of a text file. The longest that are looked at, torch's RECORD and CUDA's headers, have one or two MiB."""
MOST_JSON = 64 << 20
"""Bytes. The largest of our documents, the recorded answers of a machine with many libraries, has some three MiB."""
MOST_INSTALLED = 8 << 30
"""Bytes of a file that is installed, or listed with its digest. The largest libraries of torch have two GiB."""
MOST_LIBRARIES = 4096
"""In a wheel. The largest have some hundreds; each takes two milliseconds."""
MOST_ANSWER = 64 << 20
"""Bytes of what a child process says on each stream. The longest answers, reports of pip, have some MiB; whatever a ``.pth``
file of the environment prints comes with them."""

LONGEST_OUTPUT_LINE = 1 << 16
"""Bytes. A longer line of a container's output is taken in parts of about this length."""
MOST_LOG = 256 << 20
"""Characters of a container's output that its log keeps. A certification says a few MiB."""
MOST_REPORT = 1 << 30
"""Bytes of a report in a container, mostly its images and models."""
MOST_REPORT_FILES = 20_000
"""Files of it. One of a large suite has some hundreds."""
