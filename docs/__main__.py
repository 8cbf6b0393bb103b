# SPDX-License-Identifier: MIT
"""``python -m docs``: writes the generated documents and pictures again, those that have changed."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.printable import PrintableError
from docs import findings
from docs.generate import generated, write


@click.command()
@click.argument("reports", metavar="[REPORT.json]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(reports: tuple[Path, ...]) -> None:
    """Write all that is generated in docs/.

    The counts of each REPORT, which `python -m conformance --expected-failures EMPTY --json REPORT` wrote, are added to
    docs/findings.json first. What is new or gone in it is printed.
    """
    try:
        lines = list(findings.add(reports)) if reports else []
    except PrintableError as error:
        raise click.BadParameter(str(error), param_hint="REPORT.json") from error
    for line in (*lines, *write(generated())):
        click.echo(line)


if __name__ == "__main__":
    main(prog_name="python -m docs")
