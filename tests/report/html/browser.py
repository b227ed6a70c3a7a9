"""Headless Chromium over its DevTools pipe: what a page prints, asks for, and says to a screen reader."""

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_OPTIONS = "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --remote-debugging-pipe"


class Page:
    """One tab. Answers come by number; everything else is an event."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **params: Any) -> Any:
        """Call a method of the DevTools protocol."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0"
        while message:
            message = message[os.write(self._send, message) :]
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path | str, width: int = 1200) -> None:
        """Load a file, or an address, as a window of that width shows it."""
        self.events.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self("Emulation.setDeviceMetricsOverride", **size)
        for address in ("about:blank", page.as_uri() if isinstance(page, Path) else page):
            self("Page.navigate", url=address)
        loaded = "location.href != 'about:blank' && document.readyState == 'complete'"
        while not self.value(loaded):
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def problems(self) -> list[str]:
        """What the console shows, exceptions and refusals of the security policy included; and every request beyond the file."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                found.append(json.dumps(params)[:2000])
        return found + [f"request of {url}" for url in self.requests() if not url.startswith("file:")]

    def requests(self) -> list[str]:
        """What was asked for since a page was opened."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        asked = [params["request"]["url"] for params in sent]
        return [url for url in asked if not url.startswith(("about:", "data:"))]

    def press(self, key: str, code: int) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + 180
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._receive, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start Chromium with a profile of its own, and end it."""
    assert PROGRAM is not None
    to_child, send = os.pipe()
    receive, from_child = os.pipe()
    # the shell puts the pipes where Chromium expects them
    script = f'exec "$@" 3<&{to_child} 4>&{from_child}'
    process = subprocess.Popen(
        ["bash", "-c", script, "chromium", PROGRAM, *_OPTIONS.split(), f"--user-data-dir={profile}"],
        pass_fds=(to_child, from_child),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_child)
    os.close(from_child)
    try:
        page = Page(send, receive)
        yield page
        page._session = None
        page("Browser.close")
        process.wait(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(send)
        os.close(receive)
