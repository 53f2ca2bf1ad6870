"""A headless Chromium, driven over two pipes with its DevTools protocol: no port, no driver program, no library.

Chromium reads commands from file descriptor 3 and writes answers and events to 4, each a JSON object that ends with a null byte.
"""

from __future__ import annotations

import base64
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

from halley.report.browser import QUIET, browser

TIMEOUT = 60.0


class Chromium:
    """One page of one browser. ``events`` are all that arrived, in order."""

    def __init__(self, profile: Path) -> None:
        program = browser()
        assert program is not None, "a Chromium; install the package chromium"
        inward, self._commands = os.pipe()
        self._answers, outward = os.pipe()
        # above 9, so that neither is 3 or 4 already when the child takes these
        ends = [os.dup(end) for end in (inward, outward)]

        def take_ends() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        command = [program, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=take_ends,
        )
        for end in (inward, outward, *ends):
            os.close(end)
        self._left = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = next(item for item in self.send("Target.getTargets")["targetInfos"] if item["type"] == "page")
        self._session = str(self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command to the browser, or to the page of a session, and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.send(method, self._session, **parameters)

    def _receive(self) -> dict[str, Any]:
        stop = time.monotonic() + TIMEOUT
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._answers], [], [], max(stop - time.monotonic(), 0.0))
            assert ready, "an answer of the browser"
            chunk = os.read(self._answers, 1 << 20)
            assert chunk, "a browser that lives"
            self._left += chunk
        message, _, self._left = self._left.partition(b"\0")
        return dict(json.loads(message))

    def open(self, file: Path) -> None:
        """Go to a file and wait until it has loaded."""
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        made = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in made, made
        return made["result"].get("value")

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def png(self) -> bytes:
        """The whole page, however long."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, exceptions, and what the browser logs itself."""
        found = []
        for event in self.events:
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(event["params"]["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning", "assert"):
                    found.append(str(event["params"]["args"]))
                case "Log.entryAdded":
                    found.append(str(event["params"]["entry"]))
        return found

    def close(self) -> None:
        try:
            self.send("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(TIMEOUT)
        os.close(self._commands)
        os.close(self._answers)


@contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """A browser with a new profile, gone afterwards."""
    made = Chromium(profile)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(profile, ignore_errors=True)
