"""A report for people: as a page that needs no script, as a PDF, and as lines of text."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from embereye.process import sealed_pdf
from embereye.process.sealed_page import as_text, begin, safe, table
from embereye.process.signing import digest

STYLE = ".sign{margin-top:4rem;border-top:1px solid #111;max-width:20rem}"
HEADS = ("Device", "Fleet", "Triggered", "After", "Sign")


def verdict(made: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    total, untested = len(made["devices"]), len(made["untested"])
    if not untested:
        return f"Complete: all {total} devices were triggered."
    return f"Not complete: {untested} of {total} devices were not triggered."


def facts(made: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts at the head: name and value."""
    yield "Site", made["site"]
    yield "Zone", f"{made['namespace']}/{made['zone']}"
    yield "Started", f"{made['started']} by {made['startedBy']}"
    yield "Ended", f"{made['ended']}, {made['endedBy']}"
    if made["note"]:
        yield "Note", made["note"]
    yield "Result", verdict(made)


def rows(made: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each device, untested ones first."""
    for each in sorted(made["devices"], key=lambda device: (bool(device["tested"]), device["fleet"], device["device"])):
        after = "" if each["afterSeconds"] is None else f"{each['afterSeconds']} s"
        sign = f"{each['kind']}, {each['level']}" if each["tested"] else ""
        yield each["device"], each["fleet"], each["tested"] or "NOT TRIGGERED", after, sign


def text(data: bytes) -> str:
    """The report in the file `data` as text."""
    made = json.loads(data)["statement"]
    return as_text(f"Walk test of zone {made['namespace']}/{made['zone']}", facts(made), rows(made), data)


def pdf(data: bytes) -> bytes:
    """The report in the file `data` as a PDF with that file attached. UserError without the libraries."""
    made = json.loads(data)["statement"]
    report = sealed_pdf.Report(
        f"Walk test of zone {made['namespace']}/{made['zone']}",
        [*facts(made), ("Report", made["walktest"])],
        [sealed_pdf.Section("Devices", HEADS, list(rows(made)))],
        "embereye walktest verify",
        is_signed_by_hand=True,
    )
    return sealed_pdf.render(report, data)


def page(data: bytes) -> str:
    """The report in the file `data` as a page, to be printed and signed by hand."""
    return "".join(_page(data))


def _page(data: bytes) -> Iterator[str]:
    sealed = json.loads(data)
    made = sealed["statement"]
    yield from begin(f"Walk test of zone {made['namespace']}/{made['zone']}", facts(made), STYLE)
    yield "<h2>Devices</h2>"
    yield from table(HEADS, rows(made))
    yield '<p class="sign">Date, name, signature</p>'
    yield f"<p><code>Report {safe(made['walktest'])}<br>SHA-256 {digest(data)}<br>Key {safe(sealed['key'])}</code>"
    yield "</p></main></body></html>\n"
