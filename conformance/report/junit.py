"""A report as JUnit XML, for continuous integration.

JUnit has failures, errors and skips. A crash becomes an error; unsupported cases, departures and expected failures become
skips. Each test case also has its outcome and its basis as properties.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from conformance.case import group_of
from conformance.outcome import Outcome
from conformance.report.record import Report

ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.CRASHED: "error",
    Outcome.DEPARTED: "skipped",
    Outcome.UNSUPPORTED: "skipped",
    Outcome.EXPECTED_FAILURE: "skipped",
}


def render(report: Report) -> str:
    """A report as XML."""
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
    for case_id, entry in report.entries.items():
        attributes = {"classname": group_of(case_id), "name": case_id, "time": f"{entry.seconds:.6f}"}
        case = ET.SubElement(suite, "testcase", attributes)
        properties = ET.SubElement(case, "properties")
        for name, value in (("outcome", entry.outcome), ("basis", entry.basis)):
            if value is not None:
                ET.SubElement(properties, "property", name=name, value=value.value)
        if entry.outcome in ELEMENTS:
            ET.SubElement(case, ELEMENTS[entry.outcome], message=f"{entry.outcome.value}: {entry.message}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
