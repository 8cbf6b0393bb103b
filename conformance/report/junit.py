# SPDX-License-Identifier: MIT OR Apache-2.0
"""A report as JUnit XML, for continuous integration.

JUnit has failures, errors and skips. A crash becomes an error; unsupported cases, departures and expected failures become
skips. Each test case also has its outcome and its basis as properties, and the suite has the level and the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from conformance.case import group_of
from conformance.outcome import Outcome
from conformance.report.causes import Cause
from conformance.report.record import Report
from conformance.report.verdict import verdict

ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.CRASHED: "error",
    Outcome.DEPARTED: "skipped",
    Outcome.UNSUPPORTED: "skipped",
    Outcome.EXPECTED_FAILURE: "skipped",
}


def render(report: Report, causes: Sequence[Cause]) -> str:
    """A report and the causes of its failures as XML."""
    summary = report.summary
    suite = ET.Element(
        "testsuite",
        name=f"conformance of {report.backend}",
        tests=str(len(report.entries)),
        failures=str(summary[Outcome.FAILED]),
        errors=str(summary[Outcome.CRASHED]),
        skipped=str(sum(summary[outcome] for outcome, element in ELEMENTS.items() if element == "skipped")),
        time=f"{report.seconds:.6f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("level", report.level.value), ("verdict", verdict(report, causes))):
        ET.SubElement(properties, "property", name=name, value=value)
    for case_id, entry in report.entries.items():
        attributes = {"classname": group_of(case_id), "name": case_id, "time": f"{entry.seconds:.6f}"}
        case = ET.SubElement(suite, "testcase", attributes)
        properties = ET.SubElement(case, "properties")
        for name, kind in (("outcome", entry.outcome), ("basis", entry.basis)):
            if kind is not None:
                ET.SubElement(properties, "property", name=name, value=kind.value)
        if entry.outcome in ELEMENTS:
            ET.SubElement(case, ELEMENTS[entry.outcome], message=f"{entry.outcome.value}: {entry.message}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
