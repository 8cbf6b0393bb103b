"""A page in a browser without a window, which Chrome's DevTools protocol asks what it shows."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The programs of the browser, one of which may be installed."""

SECONDS = 120.0
"""The browser ends after so long."""


class Page:
    """A page that is loaded."""

    def __init__(self, into: IO[bytes], out: IO[bytes]) -> None:
        self._into, self._out, self._numbers = into, out, itertools.count(1)
        self._session: dict[str, str] = {}

    def load(self, file: Path) -> None:
        """Load a file, and wait for all of it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Page.enable")
        self.call("Page.navigate", url=file.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """The result of a method of the protocol."""
        number = next(self._numbers)
        text = json.dumps({"id": number, "method": method, "params": parameters, **self._session})
        self._into.write(text.encode() + b"\0")
        self._into.flush()
        while (message := self._next()).get("id") != number:
            pass
        result: dict[str, Any] = message["result"]
        return result

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (one := self._out.read(1)) != b"\0":
            if not one:
                raise EOFError("the browser has ended")
            text += one
        message: dict[str, Any] = json.loads(text)
        return message

    def resize(self, width: int) -> None:
        """Set the width of the window in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=width < 600
        )

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]


def name() -> str | None:
    """The browser that is installed, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def opened(file: Path, folder: Path) -> Iterator[Page]:
    """A page of the browser with this file; the folder is for the browser's own files."""
    here_out, there_out = os.pipe()
    there_in, here_in = os.pipe()
    # As root it has no sandbox; it reads descriptor 3 and writes to 4.
    options = f"--headless --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir={folder}"
    command = ["bash", "-c", f'exec "$0" {options} 3<&{there_in} 4>&{there_out}', str(name())]
    process = subprocess.Popen(  # noqa: S603
        command, pass_fds=(there_in, there_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(there_in)
    os.close(there_out)
    limit = threading.Timer(SECONDS, process.kill)
    limit.start()
    with os.fdopen(here_in, "wb") as into, os.fdopen(here_out, "rb") as out:
        try:
            page = Page(into, out)
            page.load(file)
            yield page
        finally:
            limit.cancel()
            process.kill()
            process.wait()
