"""A report for people: as a PDF, and as lines of text."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from embereye.process import sealed_pdf
from embereye.process.sealed_page import as_text

HEADS = ("Fault", "Target", "Started", "Recovered", "Not covered", "Outcome")


def facts(made: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts at the head: name and value."""
    yield "Site", made["site"]
    yield "Fleet", made["fleet"]
    yield "Started", f"{made['started']} by {made['startedBy']}"
    yield "Ended", f"{made['ended']}, {made['endedBy']}"
    if made["notRun"]:
        yield "Not run", ", ".join(made["notRun"])
    yield "Result", "Complete: all faults passed." if made["complete"] else "Not complete."


def rows(made: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each fault."""
    for each in made["faults"]:
        after = each["recoveredAfterSeconds"]
        recovered = "not in time" if after is None else f"after {after:g} s"
        dark = f"{each['uncoveredSeconds']:g} s of {each['allowedSeconds']:g} s"
        yield each["fault"], each["target"], each["started"], recovered, dark, each["outcome"]


def text(data: bytes) -> str:
    """The report in the file `data` as text."""
    made = json.loads(data)["statement"]
    return as_text(f"Drill {made['drill']}", facts(made), rows(made), data)


def pdf(data: bytes) -> bytes:
    """The report in the file `data` as a PDF with that file attached. UserError without the libraries."""
    made = json.loads(data)["statement"]
    sections = [sealed_pdf.Section("Faults", HEADS, list(rows(made)))]
    report = sealed_pdf.Report(f"Drill {made['drill']}", list(facts(made)), sections, "embereye drill verify")
    return sealed_pdf.render(report, data)
