"""JUnit's XML, for continuous integration.

JUnit has failures, errors and skips. A crash becomes an error; unsupported cases, departures and expected failures become
skips. Each test case has its outcome and its basis as properties as well.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from conformance.outcome import Outcome
from conformance.report.record import Run

ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.CRASHED: "error",
    Outcome.DEPARTED: "skipped",
    Outcome.UNSUPPORTED: "skipped",
    Outcome.EXPECTED_FAILURE: "skipped",
}


def render(run: Run) -> str:
    """A run as XML."""
    summary = run.summary
    suite = ET.Element(
        "testsuite",
        name=f"conformance of {run.backend}",
        tests=str(len(run.results)),
        failures=str(summary[Outcome.FAILED]),
        errors=str(summary[Outcome.CRASHED]),
        skipped=str(sum(summary[outcome] for outcome, element in ELEMENTS.items() if element == "skipped")),
        time=f"{sum(result.seconds for result in run.results):.6f}",
    )
    for result in run.results:
        asked, time = result.case, f"{result.seconds:.6f}"
        case = ET.SubElement(suite, "testcase", classname=asked.family, name=asked.id, time=time)
        properties = ET.SubElement(case, "properties")
        for name, value in (("outcome", result.outcome), ("basis", result.case.basis)):
            ET.SubElement(properties, "property", name=name, value=value.value)
        if result.outcome in ELEMENTS:
            ET.SubElement(case, ELEMENTS[result.outcome], message=f"{result.outcome.value}: {result.message}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
