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

MOST_SOURCE = 1 << 20
"""Bytes of one source file."""
MOST_SOURCES = 32 << 20
"""Bytes of all source files of a checkout together."""
MOST_PROJECT_INDEX = 256 << 20
"""Bytes of the git index of a project; the largest repositories have some 100 MB."""
MOST_PICTURES = 12 << 20
"""Bytes of all pictures in a page together, as PNG; a third more as text."""
MOST_METRICS = 128 << 20
"""Bytes of metrics.jsonl. 30,000 iterations have 17 MB."""

LONGEST_OUTPUT_LINE = 1 << 16
"""Characters of a line of what a program says; no more of it is taken."""
MOST_LOG = 256 << 20
"""Characters of a container's output that its log keeps. A certification says a few MiB."""
