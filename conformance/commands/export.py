# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m conformance export``: write the cases as data, for other languages and for ONNX's own runners."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from conformance import export
from conformance.commands.options import FOLDER, SELECT, selected_cases, wrong_call
from ortops.progress import with_progress


@click.command("export", epilog="Example: python -m conformance export cases --corpus core")
@click.argument("folder", metavar="DIR", type=FOLDER)
@SELECT
@click.option(
    "--corpus", type=click.Choice(["core", "whole"]), default="whole", show_default=True, help="Which cases to write."
)
@click.option(
    "--names",
    type=click.Choice(["id", "onnx"]),
    default="id",
    show_default=True,
    help="How folders are named: by ids, or as ONNX names its own cases, and then only those that its runners can run.",
)
def export_command(folder: Path, glob: str, corpus: str, names: export.Names) -> None:
    """Write cases to DIR as data for a program in any language: docs/corpus.md describes the files.

    The whole corpus has all cases. The core has a few hundred of them, which reject each wrong implementation that the
    whole rejects.

    With `--names onnx`, DIR/standard has folders such as test_roialign_... for onnx.backend.test and onnx_test_runner.
    Cases that expect an error, operators and modes that ONNX does not have, large inputs, and RoIs with very many samples
    are left out and counted.

    An earlier export of the same cases is replaced. DIR must not contain an export of other cases.

    The exit status is 0 if the cases are written, 2 for a wrong call or if DIR cannot be written.
    """
    core = export.core()
    cases = [case for case in selected_cases(glob) if corpus == "whole" or case.id in core]
    left_out = Counter[str]()
    if names == "onnx":
        reasons = {case: export.reason_left_out(case) for case in cases}
        cases = [case for case, reason in reasons.items() if not reason]
        left_out.update(filter(None, reasons.values()))
    counts = [f"{count} left out: {reason}" for reason, count in left_out.most_common()]
    if not cases:
        rule = f"selects no case that can be exported: {'; '.join(counts) or f'the corpus {corpus} has none of these'}"
        raise click.BadParameter(f"{glob!r} {rule}", param_hint="--select")
    known = {export.folder_name(case, names) for case in cases}
    others = sorted(path for path in folder.glob("*/test_*") if path.name not in known)
    if others:  # a runner would run them as part of this export
        text = f"has {len(others)} folders of another export, such as {others[0]}"
        raise click.BadParameter(f"{text}: remove them, or name a new folder", param_hint="DIR")
    with wrong_call("DIR", OSError):
        export.write_corpus(with_progress(cases, "export", len(cases)), folder, corpus, names)
    click.echo("\n".join((f"{len(cases)} cases written to {folder}", *counts)))
