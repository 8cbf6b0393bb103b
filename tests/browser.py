"""What a browser without a window shows of a page."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The programs of the browser, one of which may be installed."""

SECONDS = 120.0
"""The browser ends after so long."""

_FRAME = """<!doctype html>
<body><iframe width="{width}" height="1000" style="border: 0" srcdoc="{page}"></iframe>
<script>
onload = () => {{
  const shown = document.querySelector("iframe").contentDocument;
  const found = {expressions}.map((text) => new Function("document", `return (${{text}})`)(shown));
  document.body.textContent = JSON.stringify(found);
}};
</script>
"""


def name() -> str | None:
    """The browser that is installed, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def values(page: str, width: int, expressions: Sequence[str], folder: Path) -> list[Any]:
    """The values of expressions of JavaScript in a page, in a frame of this width in CSS pixels.

    Args:
        page: its text.
        width: the frame's width. A frame may be narrower than a browser's window.
        expressions: expressions of `document`, with values of JSON.
        folder: a folder for the browser's own files.
    """
    file = folder / "frame.html"
    file.write_text(_FRAME.format(width=width, page=html.escape(page), expressions=json.dumps(expressions)), "utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--dump-dom")
    command = [str(name()), *options, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)  # noqa: S603
    found = re.search("<body>(.*)</body>", done.stdout, re.DOTALL)
    assert found is not None, done.stdout
    shown: list[Any] = json.loads(html.unescape(found[1]))
    return shown
