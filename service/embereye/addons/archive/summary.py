"""Summaries of an incident for people: as text, and as a page with its pictures (pure).

Both contain everything that a reader needs to follow the alarm without EmberEye: the history with reasons, people's
actions, every attachment with its hash, and what is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any

from embereye.process.sealed_page import begin, safe, table
from embereye.process.telemetry.logs import visible
from embereye.units import SECOND

STYLE = """h2{border-bottom:1px solid #999}
pre{white-space:pre-wrap;background:#f4f4f4;padding:1rem;font-size:.85rem}figure{margin:1rem 0}
img{max-width:100%}figcaption{font-size:.85rem}@media print{a{color:inherit}}"""


@dataclass(frozen=True)
class Attachment:
    """One picture, clip or recording."""

    name: str  # its path in the file
    device: str
    time_ns: int
    words: str
    sha256: str


@dataclass(frozen=True)
class Incident:
    """The content of a summary."""

    alarm: Mapping[str, Any]  # as the hub's API describes it
    history: Sequence[str]
    attachments: Sequence[Attachment]
    audit: Sequence[Mapping[str, Any]]
    missing: Sequence[str]
    exported_ns: int

    @property
    def title(self) -> str:
        """The title."""
        return f"Fire alarm {self.alarm['alarm']} in zone {self.alarm['namespace']}/{self.alarm['zone']}"


def utc(time_ns: int) -> str:
    """A time in UTC: "2026-11-28 12:49:13 UTC"."""
    return f"{datetime.fromtimestamp(time_ns / SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def facts(incident: Incident) -> Iterator[tuple[str, str]]:
    """Yield the facts at the head of a summary: name, value."""
    alarm = incident.alarm
    yield "Zone", f"{alarm['namespace']}/{alarm['zone']}"
    yield "Began", utc(int(alarm["beganNs"]))
    yield "Ended", utc(int(alarm["endedNs"])) if int(alarm["endedNs"]) else "still open when this file was written"
    yield "Worst state", str(alarm["worst"]).removeprefix("ZONE_STATE_").lower().replace("_", "-")
    yield "Reason", str(alarm["why"])
    if mark := alarm.get("falseAlarm"):
        yield "Marked as false", f"by {mark['who']}: {mark['reason']}"
    yield "Exported", f"{utc(incident.exported_ns)} by EmberEye {version('embereye')}"


def entry_words(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """An entry of the audit trail: time, person, action, detail."""
    action = f"{entry['action']} {entry['subject']}".strip()
    return utc(int(entry["timeNs"])), f"{entry['who']} ({entry['role']})", action, str(entry["detail"])


def text(incident: Incident) -> str:
    """The summary as text."""
    lines = [incident.title, ""]
    lines += [f"{name + ':':<17}{visible(value)}" for name, value in facts(incident)]
    lines += ["", "WHAT HAPPENED"]
    lines += [visible(line) for line in incident.history]
    lines += ["", "WHO DID WHAT"]
    lines += [visible("  ".join(entry_words(entry))) for entry in incident.audit] or ["no entries of the audit trail"]
    lines += ["", "PICTURES AND CLIPS"]
    for attachment in incident.attachments:
        lines += [visible(f"{utc(attachment.time_ns)}  {attachment.device}  {attachment.words}"),
                  f"  {attachment.name}", f"  SHA-256 {attachment.sha256}"]  # fmt: skip
    if not incident.attachments:
        lines.append("none")
    if incident.missing:
        lines += ["", "NOT INCLUDED", *map(visible, incident.missing)]
    lines += [
        "",
        "SHA256SUMS has the hash of every file. Check them with: sha256sum --check SHA256SUMS",
        "Clips in .mkv and .mp4 play in VLC and similar programs. .jsonl has measured values, a line per moment.",
        "",
    ]
    return "\n".join(lines)


def html(incident: Incident) -> str:
    """The summary as a page; pictures are files next to it."""
    return "\n".join(_page(incident)) + "\n"


def _page(incident: Incident) -> Iterator[str]:
    yield from begin(incident.title, facts(incident), STYLE)
    yield "<h2>What happened</h2><pre>"
    yield "\n".join(map(safe, incident.history))
    yield "</pre><h2>Who did what</h2>"
    if incident.audit:
        yield from table(("Time", "Who", "Action", "Detail"), map(entry_words, incident.audit))
    else:
        yield "<p>No entries of the audit trail. The history above names who acted.</p>"
    yield "<h2>Pictures and clips</h2>"
    for attachment in incident.attachments:
        yield from _figure(attachment)
    if not incident.attachments:
        yield "<p>None.</p>"
    if incident.missing:
        yield "<h2>Not included</h2><ul>"
        yield from (f"<li>{safe(problem)}</li>" for problem in incident.missing)
        yield "</ul>"
    yield "<h2>Check this file</h2><p>SHA256SUMS has the hash of every file: <code>sha256sum --check SHA256SUMS</code>."
    yield "Clips in .mkv and .mp4 play in VLC and similar programs. .jsonl has measured values, a line per moment."
    yield "</p></main></body></html>"


def _figure(attachment: Attachment) -> Iterator[str]:
    caption = f"{utc(attachment.time_ns)}, {safe(attachment.device)}: {safe(attachment.words)}"
    name = escape(attachment.name, quote=True)
    shown = f'<img src="{name}" alt="">' if name.endswith(".jpg") else ""
    yield f'<figure><a href="{name}">{shown or name}</a>'
    yield f"<figcaption>{caption}<br><code>SHA-256 {attachment.sha256}</code></figcaption></figure>"
