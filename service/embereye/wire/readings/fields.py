"""Find values in a message by short paths.

A field is written `[//TOPIC ][/SUBTOPIC ]PATH[=VALUE|VALUE…]`:

| part | meaning |
| --- | --- |
| `/SUBTOPIC` | the value is in the message at the device's topic plus this, instead of its main topic |
| `//TOPIC` | the same with a whole topic |
| `PATH` | keys of the JSON document; `[0]` is an entry of a list, `*` the first key that has the rest |
| `.` or no path | the whole message |
| `=VALUE` | on if the value is one of these, else off |

Without `=`, on is `true`, `on`, `yes`, `1` and their like. Pure.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

MISSING = object()  # the value of a path that a message does not have
MAX_DEPTH = 16  # keys of a path
ON = {"true", "on", "yes", "1", "alarm", "active", "detected", "open", "triggered", "low"}
OFF = {"false", "off", "no", "0", "normal", "inactive", "clear", "closed", "idle", "ok", "none"}
_STEP = re.compile(r"([^.\[\]]+)|\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class Field:
    """The place of a value: the topic, relative to the device's, and the keys in its document."""

    topic: str = ""  # "", "/SUB/TOPIC" or "//WHOLE/TOPIC"
    keys: tuple[str | int, ...] = ()
    values: frozenset[str] = frozenset()  # on if the value is among them; none: on if it is true


def parse_field(text: str) -> Field:
    """Parse a field; ValueError says what is wrong with it."""
    topic, rest = "", text.strip()
    if rest.startswith("/"):
        topic, _, rest = rest.partition(" ") if " " in rest else _before_value(rest)
        if "+" in topic or "#" in topic:
            raise ValueError(f'"{text[:80]}": + and # are for subscriptions. Write the whole topic')
    path, equals, value = rest.strip().partition("=")
    keys: list[str | int] = []
    path = path.strip()
    if path not in {"", "."}:
        position = 0
        for step in _STEP.finditer(path):
            if path[position : step.start()] not in ("", "."):
                break
            keys.append(step[1] if step[1] is not None else int(step[2]))
            position = step.end()
        if position != len(path):
            raise ValueError(
                f'"{text[:80]}": "{path[position:][:40]}" is no path. Write keys as in alarm.smoke or list[0].value'
            )
        if len(keys) > MAX_DEPTH:
            raise ValueError(f'"{text[:80]}": has more than {MAX_DEPTH} keys')
    values = frozenset(word.strip().casefold() for word in value.split("|")) if equals else frozenset()
    return Field(topic, tuple(keys), values)


def _before_value(text: str) -> tuple[str, str, str]:
    topic, equals, value = text.partition("=")
    return topic, "", f"={value}" if equals else ""


def parse_document(payload: bytes) -> Any:
    """Parse a message: JSON, else its text. ValueError if it is neither."""
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise ValueError("neither JSON nor UTF-8 text") from error
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text.strip()


def value_at(document: Any, keys: tuple[str | int, ...]) -> Any:
    """The value at `keys`, or MISSING."""
    for number, key in enumerate(keys):
        if key == "*":
            children = document.values() if isinstance(document, dict) else ()
            values = (value_at(child, keys[number + 1 :]) for child in children)
            return next((value for value in values if value is not MISSING), MISSING)
        if isinstance(key, int) and isinstance(document, list):
            document = document[key] if key < len(document) else MISSING
        elif isinstance(document, dict):
            document = document.get(str(key), MISSING)
        else:
            return MISSING
        if document is MISSING:
            return MISSING
    return document


def is_on(value: Any, values: frozenset[str]) -> bool | None:
    """True if `value` means on, False if off; None if it says neither, as null does."""
    if value is None or isinstance(value, dict | list):
        return None
    word = _word(value)
    if values:
        return word in values
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value != 0
    return True if word in ON else False if word in OFF else None


def _word(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip().casefold()


def number(value: Any) -> float | None:
    """The number that `value` is or spells; None if it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        converted = float(value)
    except (ValueError, OverflowError):
        return None
    return converted if math.isfinite(converted) else None
