"""The readings that a device sends by HTTP, in our own format.

A body is an object, an array of objects, or one object per line:

    {"device": "kitchen", "time": "2026-11-29T05:00:00Z",
     "readings": {"smoke": false, "temperature": {"value": 70.7, "unit": "°F", "quality": "good"}}}

Without `readings`, an entry is a check-in. `time` is when the device measured, ISO 8601 or a Unix time. Pure.
"""

import json
from typing import Any, get_args

from embereye.wire.readings.fields import is_on, number
from embereye.wire.readings.quantity import QUANTITIES, Quality, Reading, Report, convert
from embereye.wire.readings.templates import time_ns

MAX_ENTRIES = 5000  # in one body
KEYS = ("device", "readings", "time")
VALUE_KEYS = ("value", "unit", "quality")
QUALITIES: tuple[str, ...] = get_args(Quality)


class TooManyEntriesError(ValueError):
    """A body has more than MAX_ENTRIES entries."""


def split(body: bytes, *, lines: bool = False) -> list[Any]:
    """Split a body into its entries; ValueError if it is not JSON. `lines`: each line is an entry."""
    try:
        if not lines:
            try:
                document = json.loads(body)
            except json.JSONDecodeError:
                if b"\n" not in body.strip():
                    raise
            else:
                return _limited(document if isinstance(document, list) else [document])
        rows = [line for line in body.splitlines() if line.strip()]
        _limited(rows)
        return [_parsed(line, row) for row, line in enumerate(rows, 1)]
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError("the body is not JSON in UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from error


def _limited(entries: list[Any]) -> list[Any]:
    if len(entries) > MAX_ENTRIES:
        raise TooManyEntriesError(f"the body has {len(entries)} entries, the most is {MAX_ENTRIES}: split it")
    return entries


def _parsed(line: bytes, row: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {row} is not JSON: {error}") from error


def device_of(entry: Any, default: str) -> str:
    """The device that an entry names, else `default`; ValueError if it names none."""
    if not isinstance(entry, dict):
        raise ValueError('an entry is not an object: write {"device": "ID", "readings": {"smoke": false}}')  # noqa: TRY004 -- it is about the message
    device = entry.get("device", default)
    if not isinstance(device, str) or not device:
        raise ValueError('an entry names no device: add "device": "ID"')
    return device


def parse_entry(entry: Any) -> Report:
    """Parse an entry; ValueError says what is wrong with it."""
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 -- it is about the message
    if unknown := [key for key in entry if key not in KEYS]:
        raise ValueError(f'"{unknown[0][:40]}" is not one of {", ".join(KEYS)}. Put quantities into "readings"')
    readings = entry.get("readings", {})
    if not isinstance(readings, dict):
        raise ValueError('"readings" is not an object such as {"smoke": false}')  # noqa: TRY004 -- it is about the message
    seen_ns = 0
    if "time" in entry and not (seen_ns := time_ns(entry["time"])):
        raise ValueError(f"time: {str(entry['time'])[:40]!r} is neither ISO 8601 nor a Unix time")
    return Report(tuple(_reading(name, value) for name, value in readings.items()), seen_ns=seen_ns)


def _reading(name: str, value: Any) -> Reading:
    if name not in QUANTITIES:
        raise ValueError(f'"{name[:40]}" is not one of {", ".join(QUANTITIES)}')
    if not isinstance(value, dict):  # nearly always
        return Reading(name, _number(name, value))
    if unknown := [key for key in value if key not in VALUE_KEYS]:
        raise ValueError(f'{name}: "{unknown[0][:40]}" is not one of {", ".join(VALUE_KEYS)}')
    quality: Quality = value.get("quality", "good")
    if quality not in QUALITIES:
        raise ValueError(f"{name}: quality {str(quality)[:20]!r} is not one of {', '.join(QUALITIES)}")
    given = value.get("value")
    if quality == "bad" and given is None:
        return Reading(name, 0.0, "bad")
    return Reading(name, convert(name, _number(name, given), str(value.get("unit", ""))), quality)


def _number(name: str, given: Any) -> float:
    """The number that a value of the quantity `name` is; ValueError if it is none."""
    binary = QUANTITIES[name].is_binary
    converted = is_on(given, frozenset()) if binary else number(given)
    if converted is None:
        raise ValueError(f"{name}: {str(given)[:40]!r} is not {'true or false' if binary else 'a number'}")
    return float(converted)
