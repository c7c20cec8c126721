"""Types of option values that argparse lacks. Each raises ArgumentTypeError, with an example, for a wrong text.

Options name one of these functions as `type`. argparse calls it with the text, also with a default from an environment
variable, and prints the sentence of its error. `check_ranges` is for the bounds of options that are numbers.
"""

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence

from embereye.process.lifecycle import UserError
from embereye.units import LAST_PORT

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTES = {"M": 1024**2, "G": 1024**3, "T": 1024**4}
DURATION = "a duration such as 90s, 30m, 12h or 7d"


def duration(text: str) -> float:
    """A duration above zero such as "90s", "1.5m", "12h" or "7d", in seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)", text)
    if match and float(match[1]):
        return float(match[1]) * SECONDS[match[2]]
    if re.fullmatch(r"-\d[\d.]*(ms|s|m|h|d)?", text):
        raise ArgumentTypeError(f'"{text}" is negative: write {DURATION}')
    if re.fullmatch(r"[\d.]+", text) and float_or_zero(text):
        raise ArgumentTypeError(f'"{text}" needs a unit: write {text}s for seconds, or {text}m for minutes')
    raise ArgumentTypeError(f'"{text}" is not {DURATION}')


def float_or_zero(text: str) -> float:
    """The number in `text`, or 0 if it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def duration_or_seconds(text: str) -> float:
    """A duration, or a number of seconds without a unit."""
    return duration(f"{text}s" if text[-1:].isdigit() and not text.startswith("-") else text)


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        wrong = "is negative: write" if re.fullmatch(r"-\d[\d.]*", text) else "is not"
        raise ArgumentTypeError(f'"{text}" {wrong} a number of seconds such as 15 or 0.5')
    return float(text)


def size(text: str) -> int:
    """A size such as "500M", "20G" or "1T", in bytes."""
    match = re.fullmatch(r"(\d{1,6})([MGT])i?", text)
    if not match or not int(match[1]):
        raise ArgumentTypeError(f'"{text}" is not a size such as 500M, 20G or 1T')
    return int(match[1]) * BYTES[match[2]]


def count(text: str) -> int:
    """A number of things, 1 or more, that fits in 31 bits."""
    return _whole(text, range(1, 2**31), "a whole number: 1 or more")


def amount(text: str) -> int:
    """A number of devices, 0 or more, up to a billion."""
    return _whole(text, range(10**9 + 1), "a whole number from 0 to a billion, such as 500")


def seed(text: str) -> int:
    """A seed of random numbers."""
    return _whole(text, range(2**63), "a seed: 0 or more")


def cursor(text: str) -> int:
    """The number of an event; 0 is before the first."""
    return _whole(text, range(2**63), "a cursor, the number of an event: 0 or more")


def entry(text: str) -> int:
    """The number of an entry of the audit trail; 0: none."""
    return _whole(text, range(2**31), "the number of an entry: 0 or more")


def _whole(text: str, allowed: range, wanted: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) in allowed):
        raise ArgumentTypeError(f'"{text}" is not {wanted}')
    return int(text)


def port_number(text: str) -> int:
    """A port, or 0 for a free one."""
    if not (text.isascii() and text.isdecimal() and int(text) <= LAST_PORT):
        raise ArgumentTypeError(f'"{text}" is not a port: from 1 to {LAST_PORT}, or 0 for a free one')
    return int(text)


def named_port(text: str) -> int:
    """A port that others have to know: 0 is not allowed."""
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= LAST_PORT):
        raise ArgumentTypeError(f'"{text}" is not a port: from 1 to {LAST_PORT}')
    return int(text)


def split_names(texts: Sequence[str]) -> tuple[str, ...]:
    """The names in `["a,b", "c"]`, each once."""
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def check_ranges(arguments: Namespace, **ranges: tuple[float, float]) -> None:
    """Raise UserError if a given option, such as min_rate, is not between its least and its greatest value."""
    for name, (least, most) in ranges.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            option = name.replace("_", "-")
            raise UserError(f"--{option} {value:g} is not between {least:.10g} and {most:.10g}")
