"""Find values in a message by short paths.

A field is written `[//TOPIC ][/SUBTOPIC ]PATH[=VALUE|VALUE…]`:

| part | meaning |
| --- | --- |
| `/SUBTOPIC` | the value is in the message at the device's topic plus this, instead of its main topic |
| `//TOPIC` | the same with a whole topic |
| `PATH` | keys of the JSON document; `[0]` is an entry of a list, `*` the first key that has the rest |
| `$.PATH`, `$[PATH]` | a query in JSONPath (RFC 9535) |
| `.` or no path | the whole message |
| `=VALUE` | on if the value is one of these, else off |

Without `=`, on is `true`, `on`, `yes`, `1` and their like. A unit may follow (`quantity.split_unit`). Pure.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonpath import JSONPath

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
    jsonpath: str = ""  # instead of keys: a query that may find several values
    query: "JSONPath | None" = field(default=None, compare=False)  # `jsonpath`, compiled

    def find_all(self, document: Any) -> Sequence[Any]:
        """All values in `document`; none if it is nested more than 100 levels deep."""
        if self.query is None:
            value = value_at(document, self.keys)
            return () if value is MISSING else (value,)
        from jsonpath import JSONPathError

        try:
            values: Sequence[Any] = self.query.findall(document) if isinstance(document, dict | list) else ()
        except JSONPathError:
            return ()
        return values


@lru_cache(maxsize=4096)  # the fields of a template are the same for all its sensors
def parse_field(text: str) -> Field:
    """Parse a field; ValueError says what is wrong with it."""
    topic, rest = "", text.strip()
    if rest.startswith("/"):
        topic, _, rest = rest.partition(" ") if " " in rest else _before_value(rest)
        if "+" in topic or "#" in topic:
            raise ValueError(f'"{text[:80]}": + and # are for subscriptions. Write the whole topic')
    if rest.strip().startswith(("$.", "$[")):
        return _parse_jsonpath(topic, rest.strip())
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
    return Field(topic, tuple(keys), _words(value) if equals else frozenset())


def _words(value: str) -> frozenset[str]:
    return frozenset(word.strip().casefold() for word in value.split("|"))


def _parse_jsonpath(topic: str, text: str) -> Field:
    """Parse `$.PATH[=VALUE|VALUE…]`: the path ends at the first = before which it is a query."""
    from jsonpath import JSONPathError

    first: JSONPathError | None = None
    for end in [match.start() for match in re.finditer("=", text)] + [len(text)]:
        path = text[:end].strip()
        try:
            query = _environment().compile(path)
        except JSONPathError as error:
            first = first or error
            continue
        values = _words(text[end + 1 :]) if end < len(text) else frozenset()
        keys = _keys_of(query)
        return Field(topic, (), values, path, query) if keys is None else Field(topic, keys, values)
    reason = first.args[0] if first else ""
    raise ValueError(f'"{text[:80]}": is no JSONPath. Write $.alarm.smoke or $.list[0].value ({reason})')


@lru_cache(maxsize=1)
def _environment() -> Any:
    """JSONPath of RFC 9535. Without match and search: a message could keep their regular expressions busy."""
    from jsonpath import JSONPathEnvironment

    environment = JSONPathEnvironment(strict=True)
    for name in ("match", "search"):
        environment.function_extensions.pop(name)
    return environment


def _keys_of(query: "JSONPath") -> tuple[str | int, ...] | None:
    """The keys of a query of names and indices only, by which values are found ten times faster; None for others."""
    keys: list[str | int] = []
    for segment in query.segments:
        selector: Any = segment.selectors[0]
        key = getattr(selector, "name", getattr(selector, "index", None))
        if not query.singular_query() or key in (None, "*") or (isinstance(key, int) and key < 0):
            return None
        keys.append(key)
    return tuple(keys)


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
        if isinstance(key, int):
            document = document[key] if isinstance(document, list) and key < len(document) else MISSING
        elif isinstance(document, dict):
            document = document.get(key, MISSING)
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
