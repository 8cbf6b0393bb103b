"""``python -m conformance export``: write the cases in the layout of ONNX's own test data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from conformance import export
from conformance.case import Case
from conformance.commands.options import FOLDER, SELECT, selected_cases, wrong_call
from ortops.progress import with_progress


@click.command("export")
@click.argument("folder", metavar="DIR", type=FOLDER)
@SELECT
@click.option("--with-large", is_flag=True, help="Include cases with large inputs: gigabytes.")
@click.option("--whole", is_flag=True, help="Export cases that must fail, too, and write DIR/index.json.")
def export_command(folder: Path, glob: str, with_large: bool, whole: bool) -> None:
    """Write cases to DIR as ONNX's test data.

    Each case becomes a folder DIR/standard/test_... for onnx.backend.test and onnx_test_runner. Cases that expect an error,
    operators and modes that ONNX does not have, and RoIs with very many samples are left out and counted.

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
    left_out = {case: export.reason_left_out(case, with_large=with_large) for case in selected_cases(glob)}
    kept = [case for case, reason in left_out.items() if not reason]
    counts = Counter(filter(None, left_out.values()))
    reasons = [f"{count} left out: {reason}" for reason, count in counts.most_common()]
    folder /= "standard"
    if not kept:
        rule = f"selects no case that can be exported: {'; '.join(reasons)}"
        raise click.BadParameter(f"{glob!r} {rule}", param_hint="--select")
    _check_new(folder.glob("test_*"), kept)
    try:
        for case in with_progress(kept, "export", len(kept)):
            export.write(case, folder / export.folder_name(case), "standard")
    except OSError as error:
        raise click.BadParameter(f"cannot write: {error}", param_hint="DIR") from error
    click.echo("\n".join((f"{len(kept)} cases written to {folder}", *reasons)))


def _check_new(folders: Iterable[Path], cases: Sequence[Case]) -> None:
    """Refuse a folder with cases that this export does not replace: a runner would run them as part of it."""
    names = {export.folder_name(case) for case in cases}
    others = sorted(path for path in folders if path.name not in names)
    if others:
        text = f"has {len(others)} folders of another export, such as {others[0]}"
        raise click.BadParameter(f"{text}: remove them, or name a new folder", param_hint="DIR")
