"""Files in which people declare an integration: YAML or JSON with a few named fields, checked as they are read.

`read_declared` reads a file and passes its content to a parser. The parser takes each object apart with `Fields`, which
refuses unknown fields and names the place of every error: `devices[0].port: "x" is not a whole number`. A UserError
then carries the option, the file, the place and the remedy.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from embereye.process.lifecycle import UserError
from embereye_operator.api.documents import read_document

T = TypeVar("T")
HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class DeclaredError(ValueError):
    """A declared value is wrong; the text starts with its place."""


def read_declared(path: Path, option: str, parse: Callable[["Fields"], T]) -> T:
    """Read the file at `path`, named by `option`, with `parse`; UserError names what is wrong."""
    try:
        return parse(Fields(read_document(path.read_bytes())))
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{option} {path}: {error}") from error


class Fields:
    """The fields of one object. Each method reads one; `close` refuses those that nobody has read."""

    def __init__(self, declared: object, where: str = "") -> None:
        """Raise DeclaredError if `declared` is no object; `where` is its place, such as "devices[0]"."""
        if declared is None:
            declared = {}
        if isinstance(declared, Mapping):  # in YAML 1.1, the bare words on and off are true and false
            declared = {{True: "on", False: "off"}.get(key, key) if isinstance(key, bool) else key: value
                        for key, value in declared.items()}  # fmt: skip
        if not isinstance(declared, Mapping) or not all(isinstance(key, str) for key in declared):
            raise DeclaredError(f"{where or 'the file'} is not an object with named fields")
        self._declared: Mapping[str, Any] = declared
        self._where = where
        self._read: set[str] = set()

    def place(self, name: str) -> str:
        """The place of the field `name`, for messages."""
        return f"{self._where}.{name}" if self._where else name

    def __contains__(self, name: str) -> bool:
        return self._declared.get(name) is not None

    def _value(self, name: str, default: Any) -> Any:
        self._read.add(name)
        value = self._declared.get(name)
        if value is not None:
            return value
        if default is ...:
            raise DeclaredError(f"{self.place(name)} is missing")
        return default

    def wrong(self, name: str, why: str) -> DeclaredError:
        """The error that the field `name` is wrong because of `why`, with its value."""
        return DeclaredError(f"{self.place(name)}: {json.dumps(self._declared.get(name), default=str)[:80]} {why}")

    def text(self, name: str, default: Any = ..., *, pattern: re.Pattern[str] | None = None, form: str = "") -> str:
        """The text `name`; DeclaredError if it does not match `pattern`, described by `form`."""
        value = self._value(name, default)
        if value is default:
            return str(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise self.wrong(name, "is not a text: put it into quotes")
        if not isinstance(value, str) or not value.isprintable():
            raise self.wrong(name, "is not a text")
        if pattern and not pattern.fullmatch(value):
            raise self.wrong(name, f"is not {form}")
        return value

    def name(self, name: str = "name") -> str:
        """The name in the field `name`."""
        return self.text(name, pattern=NAME, form="a name. Use 1 to 63 lower-case letters, digits and dashes.")

    def host(self, default: Any = ...) -> str:
        """The host name or address in the field `host`."""
        return self.text("host", default, pattern=HOST, form="a host name or an address")

    def networks(self, name: str) -> tuple[Network, ...]:
        """The networks in the list `name`, such as 10.0.0.0/8; a single address is one, too."""
        try:
            return tuple(ipaddress.ip_network(text) for text in self.texts(name))
        except ValueError as error:
            raise DeclaredError(f"{self.place(name)}: {error}") from error

    def choice(self, name: str, choices: Sequence[str], default: Any = ...) -> str:
        """The text `name`, which is one of `choices`. YAML's bare on and off are texts, too."""
        value = self._value(name, default)
        if isinstance(value, bool):
            value = "on" if value else "off"
        if value not in choices:
            raise self.wrong(name, f"is not one of {', '.join(choices)}")
        return str(value)

    def whole(self, name: str, least: int, most: int, default: Any = ...) -> int:
        """The whole number `name` from `least` to `most`."""
        value = self._value(name, default)
        if value is default:
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"is not a whole number from {least} to {most}")
        return value

    def seconds(self, name: str, default: float, least: float, most: float) -> float:
        """The duration `name` in seconds."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, f"is not a number of seconds from {least:g} to {most:g}")
        return float(value)

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

    def items(self, name: str, *, most: int, least: int = 0) -> Iterator["Fields"]:
        """Yield the objects of the list `name`."""
        listed = self._value(name, [] if least == 0 else ...)
        if not isinstance(listed, list):
            raise DeclaredError(f"{self.place(name)} is not a list")
        if not least <= len(listed) <= most:
            raise DeclaredError(f"{self.place(name)} has {len(listed)} entries. Declare {least} to {most}.")
        for number, declared in enumerate(listed):
            yield Fields(declared, f"{self.place(name)}[{number}]")

    def part(self, name: str) -> "Fields":
        """The object `name`; without fields if it is missing."""
        return Fields(self._value(name, {}), self.place(name))

    def texts(self, name: str) -> list[str]:
        """The list of texts `name`; a single text is a list of one."""
        value = self._value(name, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(text, str) and text.isprintable() for text in listed):
            raise self.wrong(name, "is not a list of texts")
        return list(listed)

    def mapping(self, name: str) -> dict[str, Any]:
        """The object `name` with any fields, for the caller to check."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "is not an object")
        return {str(key): each for key, each in value.items()}

    def close(self) -> None:
        """Raise DeclaredError if a field was not read: it is misspelt, or means nothing here."""
        if unknown := sorted(self._declared.keys() - self._read):
            known = ", ".join(sorted(self._read))
            raise DeclaredError(f"{self.place(unknown[0])} is not a field. Known here: {known}.")
