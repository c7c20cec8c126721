"""Show why a device raised no alarm in a minute: what was measured beside its limits, and what was suppressed.

For each kind of fire, the first lines name the result that was nearest to an alarm and how much was missing. The hub
keeps these results for as long as its history, within the space of its --margins: at most 2 MB for a device and day.
They arrive up to a minute later.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format

from embereye.units import SECOND
from embereye.v1.types_pb2 import Term
from embereye_cli.explain.alarm import term_words
from embereye_cli.explain.device import entries_of, known_devices
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.hub.selection_options import moment
from embereye_cli.terminal import local_time, print_answer

BY = {
    "blind": "not watched",
    "familiar": "familiar view",
    "marked": "marked false alarm",
    "colourless": "no colour",
    "confirmation": "not confirmed",
    "uncalibrated": "not calibrated",
    "test": "test",
    "shed": "shed",
    "rejected": "rejected",
    "mask": "mask",
    "silence": "silence",
    "profile": "profile",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("device", metavar="ID", help="the device's id")
    parser.add_argument("--at", type=moment, default=0, metavar="TIME",
                        help="a moment of the minute, such as 2026-11-22T17:50, or 90m for so long ago; default: the "
                        "newest complete minute")  # fmt: skip
    parser.add_argument("--terms", action="store_true", help="show all terms of each result, not only the deciding one")
    add_console_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each fleet that has the device")


def run(arguments: Namespace) -> int:
    """Explain; return 1 if nothing was stored for that minute."""
    hub = HttpHub(console_connection(arguments))
    answers = []
    for entry in entries_of(known_devices(hub), arguments.device):
        path = f"/v1/devices/{entry['fleet']}/{quote(entry['id'], safe='')}/quiet?at={arguments.at}"
        answers.append(hub.read(path, "nearest", "suppressed", "margins"))
    for answer in answers:
        print_answer(answer, sentences(answer, terms=arguments.terms), as_json=arguments.json)
    sys.stdout.flush()
    return 0 if all(answer["margins"] for answer in answers) else 1


def sentences(answer: dict[str, Any], *, terms: bool = False) -> Iterator[str]:
    """The explanation for people; `terms`: with every term."""
    span = f"{local_time(int(answer['fromNs']))} to {local_time(int(answer['untilNs']))}"
    yield f"{answer['device']} in zone {answer['zone'] or 'none'} of {answer['fleet']}, {span}"
    if missing := answer.get("missing"):
        yield f"  nothing stored for this minute: {missing}"
    for nearest in answer["nearest"]:
        yield f"  {nearest['words']}, up to {_clock(nearest['atNs'])}"
        if note := nearest["peak"].get("note"):
            yield f"    {note}"
    for item in answer["suppressed"]:
        yield f"  {BY.get(item['by'], item['by'])}: {item['why']}"
    for event in answer["events"]:
        yield f"  {_clock(event['timeNs'])} the zone: {event.get('why', '')}"
    if answer["margins"]:
        yield "  over time:"
    for margin in answer["margins"]:
        yield f"  {_clock(margin['untilNs'])}  {margin['analysed']:>6} analysed  {_peaks(margin['peaks'])}"
        if terms:
            for peak in margin["peaks"]:
                for term in peak["terms"]:
                    yield f"      {peak['kind']:<6} {_term(term)}"


def _peaks(peaks: list[dict[str, Any]]) -> str:
    words = []
    for peak in peaks:
        value = _term(peak["nearest"]) if "nearest" in peak else f"{peak['kind']} score {peak['score']:g}"
        words.append(value if peak["level"] == "clear" else f"{value} ({peak['level']})")
    return ", ".join(words)


def _term(term: dict[str, Any]) -> str:
    return term_words(json_format.ParseDict(term, Term()))


def _clock(time_ns: str) -> str:
    return local_time(int(time_ns) // SECOND * SECOND)[11:19]
