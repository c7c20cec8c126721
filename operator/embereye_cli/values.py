"""Values of options that argparse has no type for; ArgumentTypeError, with an example, where a text is none."""

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence

from embereye.units import LAST_PORT

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTES = {"M": 1024**2, "G": 1024**3, "T": 1024**4}


def duration(text: str) -> float:
    """A duration such as "90s", "1.5m", "12h" or "7d", in seconds; more than none."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)", text)
    if not match or not float(match[1]):
        raise ArgumentTypeError(f'"{text}" is not a duration such as 90s, 30m, 12h or 7d')
    return float(match[1]) * SECONDS[match[2]]


def duration_or_seconds(text: str) -> float:
    """A duration, or a number of seconds without a unit."""
    return duration(f"{text}s" if text[-1:].isdigit() else text)


def seconds(text: str) -> float:
    """A number of seconds, or none: 0."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        raise ArgumentTypeError(f'"{text}" is not a number of seconds such as 15 or 0.5')
    return float(text)


def size(text: str) -> int:
    """A size such as "500M", "20G" or "1T", in bytes."""
    match = re.fullmatch(r"(\d{1,6})([MGT])i?", text)
    if not match or not int(match[1]):
        raise ArgumentTypeError(f'"{text}" is not a size such as 500M, 20G or 1T')
    return int(match[1]) * BYTES[match[2]]


def count(text: str) -> int:
    """How many of something, at least one, as far as the wire counts."""
    return _whole(text, range(1, 2**31), "a number of things: 1 or more")


def seed(text: str) -> int:
    """What chance follows from."""
    return _whole(text, range(2**63), "a seed: 0 or more")


def cursor(text: str) -> int:
    """The number of an event; 0 is before the first."""
    return _whole(text, range(2**63), "a cursor, the number of an event: 0 or more")


def entry(text: str) -> int:
    """The number of an entry of the audit trail; 0: none."""
    return _whole(text, range(2**31), "the number of an entry: 0 or more")


def _whole(text: str, allowed: range, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) in allowed):
        raise ArgumentTypeError(f'"{text}" is not {what}')
    return int(text)


def port_number(text: str) -> int:
    """A port, or 0 where the system is to choose one."""
    if not (text.isascii() and text.isdecimal() and int(text) <= LAST_PORT):
        raise ArgumentTypeError(f'"{text}" is not a port: from 1 to {LAST_PORT}, or 0 for a free one')
    return int(text)


def named_port(text: str) -> int:
    """A port that others are told beforehand."""
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= LAST_PORT):
        raise ArgumentTypeError(f'"{text}" is not a port: from 1 to {LAST_PORT}')
    return int(text)


def split_names(texts: Sequence[str]) -> tuple[str, ...]:
    """The names in `["a,b", "c"]`, each once."""
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))
