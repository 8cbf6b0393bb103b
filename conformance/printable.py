# SPDX-License-Identifier: MIT OR Apache-2.0
r"""Escaping of foreign text for reports: the messages of backends, and reports from elsewhere.

Lines are joined by " | ". Other characters that are not printable appear as Python's escapes: the escape sequences of a
terminal (``\x1b[2J``), NUL, marks for the direction of text, lone surrogates (``\ud800``).
"""

from __future__ import annotations

from conformance.guard import is_stop

MAX_LENGTH = 2000
"""The largest length of a text."""


def printable(text: str) -> str:
    """The text as one line of printable characters, cut to `MAX_LENGTH` before it is escaped."""
    if len(text) > MAX_LENGTH:
        left_out = f"... and {len(text) - MAX_LENGTH} more characters"
        text = f"{text[: MAX_LENGTH - len(left_out)]}{left_out}"
    if "\n" in text:
        text = " | ".join(line for line in map(str.strip, text.split("\n")) if line)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def message_of(error: BaseException) -> str:
    """The message of an exception, unescaped; if its `__str__` raises, a message that says so."""
    try:
        return str.__str__(str(error))  # `str` may return a subclass, whose methods may be anyone's
    except BaseException as other:  # so may the class of the error
        if is_stop(other):
            raise
        return f"its message raised {name_of(other)}"


def name_of(error: BaseException) -> str:
    """The name of an exception's class, without attributes that a metaclass may define."""
    return str.__str__(type.__dict__["__name__"].__get__(type(error)))


def described(error: BaseException) -> str:
    """The name of an exception's class and its message, unescaped."""
    return f"{name_of(error)}: {message_of(error)}"


class PrintableError(Exception):
    """An error whose message may include foreign text, which this class escapes."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
