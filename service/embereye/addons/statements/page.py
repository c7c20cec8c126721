"""A statement for people: as a page that needs no script, as a PDF, and as lines of text."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from embereye.process import sealed_pdf
from embereye.process.sealed_page import begin, safe, table
from embereye.process.signing import digest
from embereye.process.telemetry.logs import visible

STYLE = "h2{border-bottom:1px solid #767676}.scroll{overflow-x:auto}"
Table = tuple[Sequence[str], list[Sequence[str]]]  # heads and rows


def percent(covered: int, total: int) -> str:
    """The share of time, rounded down: only a day without any gap has 100 %."""
    return f"{covered * 10_000 // total / 100:.2f} %" if total else "not declared"


def minutes(seconds: int) -> str:
    """A time in minutes: "1440", or "0.5" for shorter ones."""
    return f"{seconds // 60}" if seconds % 60 == 0 or seconds >= 6_000 else f"{seconds / 60:.1f}"


def clock(text: str) -> str:
    """The time of day in UTC of a time such as 2026-11-28T23:00:00Z."""
    return text[11:19]


def facts(made: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts at the head: name and value."""
    total, covered = (sum(zone[name] for zone in made["zones"]) for name in ("seconds", "coveredSeconds"))
    yield "Site", made["site"]
    yield "Day", f"{made['day']} in {made['timeZone'] or 'local time'}: {made['from']} to {made['until']}"
    yield "Watched", f"{percent(covered, total)} of {minutes(total)} device-minutes"
    canaries = made["canaries"]
    arrived = f"{canaries['arrived']} arrived of {canaries['expected']} expected"
    yield "Test fires", f"{arrived}; {canaries['alarmed']} became an alarm in time, {canaries['late']} late"
    yield "Made", f"{made['made']} by EmberEye {made['version']}"
    for sentence in made["unknown"]:
        yield "Not known", sentence


def alarm_words(alarm: dict[str, Any]) -> str:
    """Say how fast an alarm was acknowledged, and what it was."""
    after = alarm["acknowledgedAfterSeconds"]
    words = "not acknowledged" if after is None else f"acknowledged after {after} s"
    test, false = bool(alarm["test"]), bool(alarm["false"])
    return words + ", during a test" * test + ", marked as false" * false


def zone_tables(made: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """Yield a table for each part of the statement that has any content: its title, heads and rows."""
    away = [
        (clock(each["from"]), clock(each["until"]), minutes(each["seconds"]), each["reason"]) for each in made["away"]
    ]
    yield "Times without a hub, in UTC", (("From", "Until", "Minutes", "Reason"), list(away))
    routes = [(each["route"], str(each["sent"]), str(each["confirmed"]), each["state"]) for each in made["routes"]]
    yield "Routes to people", (("Route", "Canary messages", "Confirmed", "State"), list(routes))
    for zone in made["zones"]:
        name = f"{zone['namespace']}/{zone['zone']}"
        devices = [
            (each["device"], each["fleet"], minutes(each["coveredSeconds"]), minutes(each["seconds"]),
             percent(each["coveredSeconds"], each["seconds"]))
            for each in zone["devices"]
        ]  # fmt: skip
        yield f"Zone {name}: devices", (("Device", "Fleet", "Minutes watched", "of", "Share"), list(devices))
        gaps = [
            (each["device"], clock(gap["from"]), clock(gap["until"]), minutes(gap["seconds"]), gap["reason"])
            for each in zone["devices"]
            for gap in each["gaps"]
        ]
        yield f"Zone {name}: gaps, in UTC", (("Device", "From", "Until", "Minutes", "Reason"), list(gaps))
        alarms = [
            (each["began"], each["ended"] or "still open", alarm_words(each), each["why"]) for each in zone["alarms"]
        ]
        if zone["preAlarms"]:
            alarms.append(("", "", f"{zone['preAlarms']} pre-alarms", "one sign without confirmation"))
        yield f"Zone {name}: alarms", (("Began", "Ended", "People", "Reason"), list(alarms))
        messages = [[str(value) for value in zone["messages"].values()]] if zone["messages"] else []
        until = f" until {made['countedUntil']}" if made["countedUntil"] else ""
        yield f"Zone {name}: messages{until}", ([*map(str.capitalize, zone["messages"])], list(messages))


def text(data: bytes) -> str:
    """The statement in the file `data` as text."""
    made = json.loads(data)["statement"]
    lines = [f"Statement of watch, {made['site']}, {made['day']}", ""]
    lines += [f"{name + ':':<12} {visible(value)}" for name, value in facts(made)]
    for title, (heads, rows) in zone_tables(made):
        if rows:
            lines += ["", title]
            lines += [f"  {_line(heads, row)}" for row in rows]
    lines += ["", f"SHA-256 {digest(data)}", f"key     {json.loads(data)['key']}"]
    return "\n".join(lines)


def _line(heads: Sequence[str], row: Sequence[str]) -> str:
    return ", ".join(f"{head}: {visible(cell)}" for head, cell in zip(heads, row, strict=True))


def pdf(data: bytes) -> bytes:
    """The statement in the file `data` as a PDF with that file attached. UserError without the libraries."""
    made = json.loads(data)["statement"]
    before = ("Day before", f"SHA-256 {made['previous']}" if made["previous"] else "none: the first statement")
    sections = [sealed_pdf.Section(title, heads, rows) for title, (heads, rows) in zone_tables(made) if rows]
    title = f"Statement of watch, {made['site']}, {made['day']}"
    return sealed_pdf.render(
        sealed_pdf.Report(title, [*facts(made), before], sections, "embereye statement verify"), data
    )


def page(data: bytes) -> str:
    """The statement in the file `data` as a page."""
    return "".join(_page(data))


def _page(data: bytes) -> Iterator[str]:
    sealed = json.loads(data)
    made = sealed["statement"]
    yield from begin(f"Statement of watch, {made['site']}, {made['day']}", facts(made), STYLE)
    for heading, (heads, rows) in zone_tables(made):
        if rows:
            yield f'<h2>{safe(heading)}</h2><div class="scroll" tabindex="0">'
            yield from table(heads, rows)
            yield "</div>"
    if not made["zones"]:
        yield "<p>No device was declared on this day.</p>"
    yield "<h2>Check this statement</h2><p>The signed file is what counts; this page shows its content. "
    yield "<code>embereye statement save DIR</code> fetches the files, and "
    yield "<code>embereye statement verify DIR --key KEY</code> checks them without the hub.</p>"
    yield f"<p><code>SHA-256 {digest(data)}<br>Day before {safe(made['previous'] or 'none: the first statement')}<br>"
    yield f"Key {safe(sealed['key'])}</code></p></main></body></html>\n"
