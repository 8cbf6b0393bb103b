r"""Words of others, as they may stand in any report: a backend's messages, and reports that others have written.

Whatever would do more than stand there, or cannot be written at all, is shown as Python shows it: a terminal's escape
sequences (``\x1b[2J``), ends of lines, NUL, the direction of text, halves of characters (``\ud800``).
"""

from __future__ import annotations

MOST = 2000
"""Characters that are kept of a text."""


def printable(text: str) -> str:
    """The text in one line of characters that any terminal and any format take, at most `MOST` of its own.

    What is printable already stays as it is.
    """
    if len(text) > MOST:
        left_out = f"... and {len(text) - MOST} more characters"
        text = f"{text[: MOST - len(left_out)]}{left_out}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def message_of(error: BaseException) -> str:
    """What an exception says, printable or not; where saying it fails, that."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001  # of a class that may be anyone's
        return f"its message raised {type(other).__name__}"


class PrintableError(Exception):
    """An error in whose message others have a word."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
