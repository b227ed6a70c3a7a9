"""What an image build is at, for people: a line for each stage and for what is done there, and how long that takes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from splatfix.core.threads import start

_EVERY_S = 30.0
"""Between two lines about the same: committing a layer of gigabytes is silent for minutes."""
_STEP = re.compile(r"(?:\[\d+/\d+\] )?STEP \d+(?:/\d+)? ?: (?P<word>\w+) (?P<rest>.*)", re.IGNORECASE)
"""Docker's ``Step 3/57 : FROM base AS packages``, and Podman's ``[1/4] STEP 1/14: FROM base AS packages``."""
_COPIES = re.compile(r"--from=(\S+)")
_PIP = "downloading Python packages"
_SIGNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:Get|Hit|Ign):\d+ "), "downloading Debian packages"),
    (
        re.compile(r"(?:Selecting previously|Preparing to unpack|Unpacking|Setting up) "),
        "installing Debian packages",
    ),
    (re.compile("Collecting "), _PIP),
    (re.compile(r"\s*Downloading (\S+) \((\d{3,}\.\d MB|[\d.]+ GB)\)"), r"downloading \1 (\2)"),
    (re.compile(r"Installing collected packages: "), "installing Python packages"),
    (re.compile(r"Successfully installed "), "compiling Python's byte code, and writing the layer"),
    (re.compile(r"Successfully downloaded "), "writing the layer"),
    (re.compile(r"(\[\d+/\d+\] (?!STEP ).*)"), r"\1"),  # of splatfix install
)
"""What begins a line of apt, pip and splatfix, and what it tells of; the first that fits."""


_COMMANDS = (
    ("prepare.sh", "seeing to Python and Debian packages"),
    ("-m splatfix install", "adding splatfix, and what is built with it"),
    ("-m pip", "seeing to Python packages"),
)
"""What a command of a Dockerfile has in it, before anything is heard of it."""


class Building:
    """Hears the lines of a build and tells, in its words and from a thread of its own, what is under way and for how long."""

    def __init__(self, progress: Callable[[str], None], every_s: float = _EVERY_S) -> None:
        self._progress, self._every_s = progress, every_s
        self._lock = threading.Lock()
        self._stage, self._activity, self._began = "", "", time.monotonic()
        self._command = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="build-progress", daemon=True)

    def __enter__(self) -> Building:
        start(self._thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def hear(self, line: str) -> None:
        if step := _STEP.match(line):
            word, rest = step["word"].upper(), step["rest"]
            if word == "FROM":
                _, _, name = rest.partition(" AS ")
                self._stage = f"stage {name}" if name else "the image itself"
            with self._lock:
                self._activity, self._began = f"{self._stage}: {word}", time.monotonic()
            self._command = rest if word == "RUN" else ""
            if word == "COPY" and (source := _COPIES.search(rest)):
                self._begin(f"copying what stage {source[1]} made")
        elif line.startswith(" ---> Running in ") and self._command:  # and not from the engine's cache
            texts = [text for part, text in _COMMANDS if part in self._command]
            self._begin(texts[0] if texts else "running a command")
        else:
            for sign, text in _SIGNS:
                if match := sign.match(line):
                    self._begin(match.expand(text))
                    return

    def _begin(self, text: str) -> None:
        activity = f"{self._stage}: {text}" if self._stage else text
        with self._lock:
            before = self._activity
            if activity == before:
                return
            self._activity, self._began = activity, time.monotonic()
            # between two large downloads it need not be told again that there are small ones
            if text != _PIP or _PIP.split()[0] not in before:
                self._progress(activity)

    def _tell(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self._every_s / 10):
            now = time.monotonic()
            with self._lock:
                last = max(last, self._began)
                if self._activity and now - last >= self._every_s:
                    self._progress(f"{self._activity}, {now - self._began:.0f} s so far")
                    last = now
