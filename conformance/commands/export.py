"""``python -m conformance export``: write the cases in the layout of ONNX's own test data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from conformance import export
from conformance.case import MAX_SAMPLES, Case
from conformance.commands.options import FOLDER, SELECT, selected_cases, wrong_call
from conformance.model import Dialect
from ortops.progress import with_progress


@click.command("export")
@click.argument("folder", metavar="DIR", type=FOLDER)
@SELECT
@click.option(
    "--dialect",
    type=click.Choice(["standard", "ortops"]),
    default="standard",
    show_default=True,
    help="Write ONNX's own nodes, or custom operators.",
)
@click.option("--with-huge", is_flag=True, help=f"Include cases with more than {MAX_SAMPLES} samples.")
@click.option("--with-large", is_flag=True, help="Include cases with large inputs: gigabytes.")
@click.option("--whole", is_flag=True, help="Export cases that must fail, too, and write DIR/index.json.")
def export_command(folder: Path, glob: str, dialect: Dialect, with_huge: bool, with_large: bool, whole: bool) -> None:
    """Write cases to DIR as ONNX's test data.

    Each case becomes a folder DIR/DIALECT/test_... for onnx.backend.test and onnx_test_runner. The layout cannot express
    cases that expect an error. The standard dialect cannot express operators and modes that ONNX does not have. These
    cases are left out and counted.

    With --whole only large inputs are left out. Each case has ONNX's node if there is one, or else a custom operator.
    Separate folders have the cases that ONNX's runners cannot run, and DIR/index.json describes each case and how it is
    judged.

    An earlier export of the same cases is replaced. DIR must not contain an export of other cases.

    The exit status is 0 if the cases are written, 2 for a wrong call or if DIR cannot be written.
    """
    if whole:
        cases = [case for case in selected_cases(glob) if with_large or case.formula is None]
        _check_new(folder.glob("*/test_*"), cases)
        with wrong_call("DIR", OSError):
            export.write_whole(with_progress(cases, "export", len(cases)), folder)
        click.echo(f"{len(cases)} cases written to {folder}")
        return
    kept, left_out = export.split_exportable(selected_cases(glob), dialect, with_huge=with_huge, with_large=with_large)
    reasons = [f"{count} left out: {reason}" for reason, count in left_out.most_common()]
    if not kept:
        rule = f"selects no case that can be exported: {'; '.join(reasons)}"
        raise click.BadParameter(f"{glob!r} {rule}", param_hint="--select")
    _check_new((folder / dialect).glob("test_*"), kept)
    try:
        for case in with_progress(kept, "export", len(kept)):
            export.write(case, folder / dialect / export.folder_name(case), dialect)
    except OSError as error:
        raise click.BadParameter(f"cannot write: {error}", param_hint="DIR") from error
    click.echo("\n".join((f"{len(kept)} cases written to {folder / dialect}", *reasons)))


def _check_new(found: Iterable[Path], cases: Sequence[Case]) -> None:
    """Refuse a folder with cases that this export does not replace: a runner would run them as part of it."""
    names = {export.folder_name(case) for case in cases}
    others = sorted(path for path in found if path.name not in names)
    if others:
        text = f"has {len(others)} folders of another export, such as {others[0]}"
        raise click.BadParameter(f"{text}: remove them, or name a new folder", param_hint="DIR")
