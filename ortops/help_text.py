# SPDX-License-Identifier: MIT
"""Help texts for the command lines that do not break names at hyphens."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

_HYPHEN = re.compile(r"(?<=\w)-(?=\w)")
_WHOLE = "\N{NON-BREAKING HYPHEN}"


class _HelpFormatter(click.HelpFormatter):
    """A formatter that breaks lines only at spaces. It prints plain hyphens, so that names can be copied."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_HYPHEN.sub(_WHOLE, text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of options or commands."""
        super().write_dl([(name, _HYPHEN.sub(_WHOLE, text)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """The text written so far."""
        return super().getvalue().replace(_WHOLE, "-")


def keep_names_whole() -> None:
    """Use this formatter for all help texts in this process."""
    click.Context.formatter_class = _HelpFormatter
