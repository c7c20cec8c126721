"""Try out how a sensor's messages are read: print the readings in a sample message.

The sample is a file with one message as the device publishes it, or - for standard input. Without --template and
--field, the keys of the message are listed that could be used.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from embereye.process.lifecycle import CheckFailedError, NotFoundError, UserError, value_errors
from embereye.wire.readings.fields import parse_document
from embereye.wire.readings.pushed import device_of, parse_entry, split
from embereye.wire.readings.quantity import QUANTITIES, Report
from embereye.wire.readings.sparkplug import Births
from embereye.wire.readings.templates import TEMPLATES, mapping_of, read
from embereye_cli.terminal import print_json, print_table

TOPIC = "sensor"  # if none is given
MOST_KEYS = 100  # listed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye sensor map`."""
    parser.add_argument("--sample", required=True, metavar="FILE", help="file with one message; - is standard input")
    parser.add_argument("--template", choices=list(TEMPLATES), default="plain", help="layout (%(default)s)")
    parser.add_argument("--field", action="append", default=[], metavar="QUANTITY=FIELD",
                        help="where a quantity is, such as smoke=alarm.state=ON or smoke=$.alarm.state=ON (JSONPath); "
                        "repeatable. Quantities: "
                        f"{', '.join(QUANTITIES)}")  # fmt: skip
    parser.add_argument("--topic", default="", help="topic of the sensor, as in source: mqtt:TOPIC")
    parser.add_argument("--at", default="", metavar="TOPIC", help="topic of the sample (default: the main one)")
    parser.add_argument("--entries", action="store_true", help="the sample is a body of POST /v1/readings")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print the readings; exit code 1 if there are none."""
    payload = _content(arguments.sample)
    if arguments.entries:
        return _run_entries(payload, json_lines=arguments.json)
    fields = dict(_split(text) for text in arguments.field)
    with value_errors(""):
        topic = arguments.topic or ("GROUP/NODE/DEVICE" if arguments.template == "sparkplug" else TOPIC)
        mapping = mapping_of(topic, arguments.template, fields)
        if arguments.template == "sparkplug":
            payload = Births(is_node="/NDATA/" in mapping.main).document(arguments.at or mapping.main, payload)
        report = read(mapping, arguments.at or mapping.main, payload)
    at = arguments.at or mapping.main
    if at not in mapping.entries:
        raise UserError(f'--at "{at}": this sensor has no such topic, only {", ".join(mapping.topics)}')
    if arguments.json:
        print_json({"readings": _values(report), "topics": mapping.topics, "isCheckIn": report.is_check_in})
    elif report.readings:
        print_readings(report, "")
    if report.readings:
        return 0
    leaves = _list_leaves(parse_document(payload))
    if not arguments.json:
        print_table(("field", "value"), leaves, empty="The message has no field.")
    raise CheckFailedError(
        "no quantity is in this message. Name its field with --field, such as --field smoke=alarm.state=ON"
    )


def _run_entries(payload: bytes, *, json_lines: bool) -> int:
    """Print the readings of each entry in a body of POST /v1/readings; exit code 1 if one cannot be read."""
    with value_errors(""):
        entries = split(payload)
    rows: list[tuple[str, str, str, str]] = []
    problems = []
    for number, entry in enumerate(entries, 1):
        try:
            device, report = device_of(entry, "-"), parse_entry(entry)
        except ValueError as error:
            problems.append(f"entry {number}: {error}")
            continue
        if json_lines:
            print_json({"device": device, "readings": _values(report)})
        rows += [(device, reading.quantity, shown(reading.quantity, reading.value), reading.quality)
                 for reading in report.readings] or [(device, "-", "check-in", "-")]  # fmt: skip
    if not json_lines:
        print_table(("device", "quantity", "value", "quality"), rows, empty="")
    if problems:
        raise CheckFailedError("; ".join(problems))
    return 0


def _values(report: Report) -> dict[str, float]:
    return {reading.quantity: reading.value for reading in report.readings}


def _content(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"--sample {name}: does not exist") from error
    except OSError as error:
        raise UserError(f"--sample {name}: {error.strerror}") from error


def _split(text: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not equals:
        raise UserError(f'--field "{text}": write QUANTITY=FIELD, such as smoke=alarm.state=ON')
    return name, rest


def shown(quantity: str, value: float) -> str:
    """A value with its unit; on or off for a binary one."""
    unit = QUANTITIES[quantity].unit
    return f"{value:g} {unit}" if unit else "on" if value else "off"


def print_readings(report: Report, empty: str) -> None:
    """Print a table of the readings in `report`, or `empty` if it has none."""
    rows = [
        (reading.quantity, shown(reading.quantity, reading.value), QUANTITIES[reading.quantity].meaning)
        for reading in report.readings
    ]
    print_table(("quantity", "value", "meaning"), rows, empty=empty)


def _list_leaves(document: Any, path: str = "") -> list[tuple[str, str]]:
    """The paths of a document's values, and their values as JSON."""
    if isinstance(document, dict):
        children = [(f"{path}.{key}" if path else str(key), child) for key, child in document.items()]
    elif isinstance(document, list):
        children = [(f"{path}[{number}]", child) for number, child in enumerate(document)]
    else:
        return [(path or ".", json.dumps(document, ensure_ascii=False)[:60])]
    return [leaf for place, child in children for leaf in _list_leaves(child, place)][:MOST_KEYS]
