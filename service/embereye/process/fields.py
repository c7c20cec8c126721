"""The fields of an object that people declare, such as a webhook or a monitoring station, checked as they are read.

A parser is a function from `Fields` to a value. `Fields` refuses unknown fields and names the place of every error:
`devices[0].port: "x" is not a whole number`.
"""

import ipaddress
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|h|d)")
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class DeclaredError(ValueError):
    """A declared value is wrong; the text starts with its place."""

    def __init__(self, sentence: str, place: str = "") -> None:
        super().__init__(sentence)
        self.place = place  # '': the whole file


def shown_duration(seconds: float) -> str:
    """A duration as in files, such as 5m."""
    unit = next((unit for unit in "dhm" if seconds >= UNITS[unit] and seconds % UNITS[unit] == 0), "s")
    return f"{seconds / UNITS[unit]:g}{unit}"


class Fields:
    """The fields of one object. Each method reads one; the unread ones are refused in the end."""

    def __init__(self, declared: object, where: str = "") -> None:
        """Raise DeclaredError if `declared` is no object; `where` is its place, such as "devices[0]"."""
        if declared is None:
            declared = {}
        if isinstance(declared, Mapping):  # in YAML 1.1, the bare words on and off are true and false
            declared = {{True: "on", False: "off"}.get(key, key) if isinstance(key, bool) else key: value
                        for key, value in declared.items()}  # fmt: skip
        if not isinstance(declared, Mapping) or not all(isinstance(key, str) for key in declared):
            raise DeclaredError(f"{where or 'the file'} is not an object with named fields", where)
        self._declared: Mapping[str, Any] = declared
        self._where = where
        self._read: set[str] = set()

    def parse(self, parse: Callable[["Fields"], T]) -> T:
        """Read the object with `parse`; DeclaredError if a field was not read, since it is misspelt or useless here."""
        value = parse(self)
        if unknown := sorted(self._declared.keys() - self._read):
            known = ", ".join(sorted(self._read))
            place = self.place(unknown[0])
            raise DeclaredError(f"{place} is not a field. Known here: {known}.", place)
        return value

    # Places and errors

    def place(self, name: str, index: int | None = None) -> str:
        """The place of the field `name`, or of a value of its list, for messages."""
        place = f"{self._where}.{name}" if self._where and name else self._where or name
        return place if index is None else f"{place}[{index}]"

    def error(self, name: str, sentence: str, index: int | None = None) -> DeclaredError:
        """The error `sentence` about the field `name`, or about this object if it is ''; it does not show the value."""
        place = self.place(name, index)
        return DeclaredError(f"{place}: {sentence}" if place else sentence, place)

    def wrong(self, name: str, why: str, index: int | None = None) -> DeclaredError:
        """The error that the field `name` is wrong because of `why`, with its value."""
        value = self._declared.get(name)
        if index is not None and isinstance(value, list):
            value = value[index]
        return self.error(name, f"{json.dumps(value, default=str)[:80]} {why}", index)

    def missing(self, name: str, remedy: str = "") -> DeclaredError:
        """The error that the field `name` is missing."""
        place = self.place(name)
        return DeclaredError(f"{place} is missing. {remedy}" if remedy else f"{place} is missing", place)

    # Values

    def __contains__(self, name: str) -> bool:
        self._read.add(name)
        return self._declared.get(name) is not None

    def _value(self, name: str, default: Any) -> Any:
        self._read.add(name)
        value = self._declared.get(name)
        if value is not None:
            return value
        if default is ...:
            similar = get_close_matches(name, self._declared.keys() - self._read, n=1)
            raise self.missing(name, f"{similar[0]} is not a field." if similar else "")
        return default

    def text(self, name: str, default: Any = ..., *, pattern: re.Pattern[str] | None = None, form: str = "") -> str:
        """The text `name`; DeclaredError if it does not match `pattern`, described by `form`."""
        value = self._value(name, default)
        if value is default:
            return str(value)
        self._check_text(name, value)
        if pattern and not pattern.fullmatch(value):
            raise self.wrong(name, f"is not {form}")
        return str(value)

    def _check_text(self, name: str, value: object, index: int | None = None) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise self.wrong(name, "is not a text: put it into quotes", index)
        if not isinstance(value, str) or not value.isprintable():
            raise self.error(name, "it is not a text", index)  # its value may be a secret

    def name(self, name: str = "name") -> str:
        """The name in the field `name`."""
        return self.text(name, pattern=NAME, form="a name. Use 1 to 63 lower-case letters, digits and dashes.")

    def host(self, default: Any = ...) -> str:
        """The host name or address in the field `host`."""
        return self.text("host", default, pattern=HOST, form="a host name or an address")

    def networks(self, name: str) -> tuple[Network, ...]:
        """The networks in the list `name`, such as 10.0.0.0/8; a single address is one, too."""
        networks = []
        for index, text in enumerate(self.texts(name)):
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                raise self.wrong(name, f"is not a network such as 10.0.0.0/8 ({error})", index) from error
        return tuple(networks)

    def choice(self, name: str, choices: Sequence[str], default: Any = ...) -> str:
        """The text `name`, which is one of `choices`. YAML's bare on and off are texts, too."""
        value = self._value(name, default)
        if isinstance(value, bool):
            value = "on" if value else "off"
        if value not in choices:
            raise self.wrong(name, f"is not one of {', '.join(choices)}")
        return str(value)

    def choices(self, name: str, choices: Sequence[str], default: Any = ...) -> tuple[str, ...]:
        """The texts of the list `name`, each of which is one of `choices`."""
        texts = self.texts(name, default)
        for index, text in enumerate(texts):
            if text not in choices:
                raise self.wrong(name, f"is not one of {', '.join(choices)}", index)
        return tuple(texts)

    def whole(self, name: str, least: int, most: int, default: Any = ...) -> int:
        """The whole number `name` from `least` to `most`."""
        value = self._value(name, default)
        if value is default:
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"is not a whole number from {least} to {most}")
        return value

    def number(self, name: str, default: float) -> float:
        """The number `name`, which is finite."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.wrong(name, "is not a number")
        return float(value)

    def seconds(self, name: str, default: float, least: float, most: float) -> float:
        """The duration `name` in seconds."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, f"is not a number of seconds from {least:g} to {most:g}")
        return float(value)

    def duration(self, name: str, default: Any, least: float, most: float) -> float:
        """The duration `name`, written such as 30s, 5m or 24h, in seconds."""
        value = self._value(name, default)
        if value is default:
            return float(value)
        match = DURATION.fullmatch(str(value).strip())
        if not match:
            raise self.wrong(name, "is not a duration. Use for example 30s, 5m or 24h.")
        seconds = float(match[1]) * UNITS[match[2]]
        if not least <= seconds <= most:
            raise self.wrong(name, f"is not between {shown_duration(least)} and {shown_duration(most)}")
        return seconds

    def flag(self, name: str, default: bool = False) -> bool:
        """The flag `name`."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "is not true or false")
        return value

    def file(self, name: str) -> Path | None:
        """The file that the field `name` names; None if it is missing."""
        text = self.text(name, "")
        return Path(text) if text else None

    def texts(self, name: str, default: Any = ()) -> list[str]:
        """The list of texts `name`; a single text is a list of one."""
        value = self._value(name, default)
        listed = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
        if listed is None:
            raise self.wrong(name, "is not a list of texts")
        for index, text in enumerate(listed):
            self._check_text(name, text, index)
        return listed

    def mapping(self, name: str) -> dict[str, Any]:
        """The object `name` with any fields, for the caller to check."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "is not an object")
        return {str(key): each for key, each in value.items()}

    # Objects

    def part(self, name: str, parse: Callable[["Fields"], T]) -> T | None:
        """The object `name`, read with `parse`; None if it is missing."""
        return Fields(self._declared[name], self.place(name)).parse(parse) if name in self else None

    def items(self, name: str, parse: Callable[["Fields"], T], *, most: int, least: int = 0) -> list[T]:
        """The objects of the list `name`, each read with `parse`."""
        listed = self._value(name, [] if least == 0 else ...)
        if not isinstance(listed, list):
            raise DeclaredError(f"{self.place(name)} is not a list", self.place(name))
        if not least <= len(listed) <= most:
            raise DeclaredError(f"{self.place(name)} has {len(listed)} entries. Declare {least} to {most}.",
                                self.place(name))  # fmt: skip
        return [Fields(declared, self.place(name, index)).parse(parse) for index, declared in enumerate(listed)]

    def unique(
        self, name: str, parse: Callable[["Fields"], T], *, most: int, least: int = 0, key: str = "name"
    ) -> dict[str, T]:
        """The objects of the list `name` by their attribute `key`; DeclaredError if two have the same."""
        items: dict[str, T] = {}
        for index, item in enumerate(self.items(name, parse, most=most, least=least)):
            if (value := getattr(item, key)) in items:
                raise self.error(name, f'the {key} "{value}" is declared twice', index)
            items[value] = item
        return items
