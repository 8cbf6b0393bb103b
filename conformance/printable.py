r"""Escaping of foreign text for reports: the messages of backends, and reports from elsewhere.

Characters that are not printable appear as Python's escapes: the escape sequences of a terminal (``\x1b[2J``), line ends,
NUL, marks for the direction of text, lone surrogates (``\ud800``).
"""

from __future__ import annotations

MAX_LENGTH = 2000
"""Characters of a text that are kept."""


def printable(text: str) -> str:
    """The text in one line of printable characters, cut to `MAX_LENGTH` before it is escaped."""
    if len(text) > MAX_LENGTH:
        left_out = f"... and {len(text) - MAX_LENGTH} more characters"
        text = f"{text[: MAX_LENGTH - len(left_out)]}{left_out}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def message_of(error: BaseException) -> str:
    """The message of an exception, not escaped; if its `__str__` raises, a message that says so."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001  # the class may be anyone's
        return f"its message raised {type(other).__name__}"


class PrintableError(Exception):
    """An error whose message may include foreign text, which this class escapes."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
