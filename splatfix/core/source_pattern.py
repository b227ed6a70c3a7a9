"""What to look for in source files: knowledge states it, the probe of a checkout and the edit rules search with it."""

import fnmatch
import re

from msgspec import Struct

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_C_FAMILY = (".h", ".hpp", ".cuh", ".cu", ".cpp", ".cc")


class SourcePattern(Struct, frozen=True):
    """Code on which builds are known to break; expressions are compiled when they are first looked for."""

    key: str
    """Key of the breakage it belongs to."""
    files: tuple[str, ...]
    """Glob patterns of file names."""
    pattern: str
    unless: str = ""
    """A file that matches this too is fine."""

    def looks_at(self, name: str) -> bool:
        """Tell whether a file of this name is searched; ``name`` may be a path with '/'."""
        return any(fnmatch.fnmatch(name.rpartition("/")[2], glob) for glob in self.files)

    def find(self, text: str, *included: str) -> re.Match[str] | None:
        """Return the first match in a file's text; None where ``unless`` matches that text or one of ``included``."""
        match = re.search(self.pattern, text)
        if match and self.unless and any(re.search(self.unless, part) for part in (text, *included)):
            return None
        return match


class NamePattern(Struct, frozen=True):
    """Names on which Python code is known to break."""

    key: str
    """Key of the breakage they belong to."""
    names: frozenset[str]
    """``numpy.float``, ``imp``: the whole name, however the code imports it; ``*.name`` is an attribute of any object."""

    def holds(self, used: str) -> bool:
        """Tell whether a dotted name is one of them, or something inside of one of them."""
        parts = used.split(".")
        return any(".".join(parts[:count]) in self.names for count in range(1, len(parts) + 1))


def without_comments(name: str, text: str) -> str:
    """Return the text of a C++ or CUDA file with its comments blanked, so that offsets stay; other files as they are."""
    if not name.endswith(_C_FAMILY):
        return text
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
