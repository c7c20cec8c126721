"""A report for people: as a page that needs no script, and as lines of text (pure)."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from embereye.process.signing import digest
from embereye.process.telemetry.logs import visible

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#111;background:#fff}h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}td,th{text-align:left;border-bottom:1px solid #ccc;
padding:.3rem .6rem .3rem 0;vertical-align:top;overflow-wrap:anywhere}code{font-size:.75rem;overflow-wrap:anywhere}
.sign{margin-top:4rem;border-top:1px solid #111;max-width:20rem}"""
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
    sealed = json.loads(data)
    made = sealed["statement"]
    lines = [f"Walk test of zone {made['namespace']}/{made['zone']}", ""]
    lines += [f"{name + ':':<9} {visible(value)}" for name, value in facts(made)]
    lines += ["", *(visible("  ".join(filter(None, cells))) for cells in rows(made))]
    lines += ["", f"SHA-256 {digest(data)}", f"key     {sealed['key']}"]
    return "\n".join(lines)


def page(data: bytes) -> str:
    """The report in the file `data` as a page, to be printed and signed by hand."""
    return "".join(_page(data))


def _page(data: bytes) -> Iterator[str]:
    sealed = json.loads(data)
    made = sealed["statement"]
    title = _safe(f"Walk test of zone {made['namespace']}/{made['zone']}")
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{STYLE}</style></head><body><main><h1>{title}</h1><table>"
    for name, value in facts(made):
        yield f'<tr><th scope="row">{name}</th><td>{_safe(value)}</td></tr>'
    yield "</table><h2>Devices</h2><table><thead><tr>"
    yield from (f'<th scope="col">{head}</th>' for head in HEADS)
    yield "</tr></thead><tbody>"
    for cells in rows(made):
        yield "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in cells) + "</tr>"
    yield '</tbody></table><p class="sign">Date, name, signature</p>'
    yield f"<p><code>Report {_safe(made['walktest'])}<br>SHA-256 {digest(data)}<br>Key {_safe(sealed['key'])}</code>"
    yield "</p></main></body></html>\n"


def _safe(words: str) -> str:
    return escape(visible(words))
