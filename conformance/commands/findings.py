"""``python -m conformance findings``: what is known of runtimes, as a document."""

from __future__ import annotations

from pathlib import Path

import click

from conformance import findings
from conformance.commands.options import IN_FILE, out_file, wrong_call
from conformance.report.record import NotAReportError, Report, read_merged
from ortops import atomic_file

MAX_NAMED = 5
"""How many cases without a finding are named."""


@click.command("findings")
@click.argument("reports", metavar="[REPORT.json]...", nargs=-1, type=IN_FILE)
@out_file("--markdown", "Write the parts of the document F that are made from data; F is made where it is missing.")
@out_file("--counts", "Add the counts of the reports to F, a JSON file with the counts of earlier runs.")
def findings_command(reports: tuple[Path, ...], markdown_file: Path | None, counts_file: Path | None) -> None:
    """Write where runtimes depart from the specification.

    The findings are those of conformance/expected_failures. For each report, which `run --json` wrote with an empty
    list of expected failures, the command prints the cases that fail and that no finding lists, and the findings of
    which no case fails any more.

    The exit status is 0, whatever failed; 2 for a wrong call.
    """
    known = findings.runtimes()
    with wrong_call("REPORT.json", NotAReportError, findings.FindingsError):
        read = read_merged(reports)
        counts = [findings.count(report, known) for report in read]
    for report in read:
        _print_changes(report, known)
    with wrong_call("--counts", findings.FindingsError):
        kept = findings.read_counts(counts_file) if counts_file else []
    runs = findings.merged(kept, counts, known)
    if counts_file:
        findings.write_counts(counts_file, runs)
    if markdown_file:
        text = markdown_file.read_text("utf-8") if markdown_file.exists() else findings.blank()
        with wrong_call("--markdown", findings.FindingsError):
            atomic_file.write(markdown_file, findings.rewritten(text, known, runs))


def _print_changes(report: Report, known: list[findings.Runtime]) -> None:
    runtime, version = findings.of_report(report, known)
    unlisted, gone = findings.changes(report, known)
    title = f"{runtime.title} {version}"
    for case_id in unlisted[:MAX_NAMED]:
        click.echo(f"{title}: no finding lists {case_id}: {report.entries[case_id].message}")
    if len(unlisted) > MAX_NAMED:
        click.echo(f"{title}: no finding lists {len(unlisted) - MAX_NAMED} other cases that fail")
    for finding in gone:
        click.echo(f"{title}: no case fails any more of: {finding.reason}")
    if not unlisted and not gone:
        click.echo(f"{title}: as listed")
