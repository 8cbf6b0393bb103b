# SPDX-License-Identifier: MIT
"""``python -m release DIR``: builds what a release has, and tries each file as a user would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ortops.library.targets import TARGETS, this_machine
from release.artefacts import build
from release.commands import run, step
from release.tries import pythons_here, try_all

ROOT = Path(__file__).parents[1]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("out", metavar="DIR", type=click.Path(exists=False, path_type=Path))
@click.option("--clone", is_flag=True, help="Build the last commit in a new clone, and not this folder as it is.")
@click.option(
    "--all", "all_targets", is_flag=True, help="Build libraries for all platforms, and not for this one alone."
)
@click.option(
    "--python",
    "pythons",
    metavar="PATH",
    multiple=True,
    help="Also try the wheel in this Python. [default: those of PATH]",
)
def main(out: Path, clone: bool, all_targets: bool, pythons: Sequence[str]) -> None:
    """Build what a release has in DIR, which must not exist, and try each file in a new environment.

    DIR/dist gets the sdist and the wheels, DIR/extras libraries and their header, the corpus, the SBOM and the SHA-256 sums
    of all files.

    It runs on Linux and needs the extra `release`. It says what it cannot try: Pythons that are not installed, and platforms
    that nothing emulates (`release.hosts` names the packages). The exit status is 0 if all else does what it should.
    """
    if out.exists():
        raise click.BadParameter(f"{out} exists already", param_hint="DIR")
    with step("release") as folder:
        out.mkdir(parents=True)
        sources = folder / "ortops" if clone else ROOT
        if clone:
            with step("clone"):
                run("git", "clone", "--quiet", ROOT, sources, cwd=out)
        build(sources, out.resolve(), TARGETS if all_targets else [this_machine()])
        for missing in try_all(sources, out.resolve(), pythons_here(pythons)):
            click.echo(f"not tried: {missing}")


if __name__ == "__main__":
    main(prog_name="python -m release")
