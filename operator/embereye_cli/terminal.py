"""Output that people and programs read: tables, records, times and JSON.

Commands print tables and JSON through these functions, so that all of them look alike. A table becomes records on a
narrow terminal and unwrapped lines in a pipe. Control characters in cells are made visible, because names come from
devices and people. JSON has all fields of a message, in camelCase.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from embereye.process.telemetry.logs import visible
from embereye.units import SECOND

M = TypeVar("M", bound=Message)
NARROW = 60  # columns of a terminal; a narrower one gets records instead of a table
UNLIMITED = 10_000  # columns of a pipe or a file: each row is one line
# Names that a message has for a thing → its name in the output of every command.
OUTPUT_NAMES = {"Zone": {"name": "zone"}}


class Terminal(Console):
    """A console that ends quietly when nobody reads its output any more; rich would exit with an error."""

    def __init__(self, **options: Any) -> None:
        """Take the terminal's width; a pipe or a file has no limit unless COLUMNS sets one."""
        if "COLUMNS" not in os.environ and not sys.stdout.isatty():
            options.setdefault("width", UNLIMITED)
        super().__init__(highlight=False, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


def print_table(
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[str | Text]],
    *,
    empty: str,
    console: Console | None = None,
) -> None:
    """Print `rows` as a table, or as records on a narrow terminal; print `empty` if there are none."""
    console = console or Terminal()
    lines = [[cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row] for row in rows]
    if not lines:
        console.print(empty, style="dim", soft_wrap=True)
    elif console.width < NARROW:
        _print_records(
            [str(column.header if isinstance(column, Column) else column) for column in columns], lines, console
        )
    else:
        table = Table(*columns, box=None, header_style="dim", pad_edge=False)
        for line in lines:
            table.add_row(*line)
        console.print(table)


def _print_records(names: Sequence[str], lines: Iterable[Sequence[Text]], console: Console) -> None:
    """Print one line per cell, and an empty line between two records."""
    width = max(map(len, names))
    for number, line in enumerate(lines):
        if number:
            console.print()
        for name, cell in zip(names, line, strict=True):
            if cell.plain:
                console.print(Text.assemble((f"{name:<{width}}  ", "dim"), cell), soft_wrap=True)


def print_messages(
    messages: Iterable[M],
    columns: Sequence[str | Column],
    cells: Callable[[M], Sequence[str | Text]],
    *,
    empty: str,
    as_json: bool,
    console: Console | None = None,
) -> None:
    """Print each of `messages` as a line of JSON, or all as a table of `cells`; print `empty` if there are none."""
    if not as_json:
        print_table(columns, map(cells, messages), empty=empty, console=console)
        return
    for message in messages:
        print_json(message)


def print_answer(document: Message | dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print `lines`, or `document` as JSON."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        print(visible(line))


def whole_column(name: str) -> Column:
    """A column of names that people copy: they are never wrapped."""
    return Column(name, no_wrap=True)


def local_time(time_ns: int, *, timespec: str = "seconds") -> str:
    """A time since the Unix epoch as people read it: local, with its offset, as in "2026-11-28 12:49:13+01:00"."""
    return datetime.fromtimestamp(time_ns / SECOND).astimezone().isoformat(" ", timespec)


def print_json(value: Message | dict[str, Any], *, line: bool = True) -> None:
    """Print one JSON object, on one line or indented. A message's fields are all there, also those of no value."""
    document = _message_object(value) if isinstance(value, Message) else value
    print(json.dumps(document, ensure_ascii=False, indent=None if line else 2), flush=True)


def camel_keys(value: Any) -> Any:
    """`value` with the keys of all objects in it as `camelCase`, like those of messages."""
    if isinstance(value, dict):
        return {_camel(key) if isinstance(key, str) else key: camel_keys(entry) for key, entry in value.items()}
    return [camel_keys(entry) for entry in value] if isinstance(value, list | tuple) else value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _message_object(message: Message) -> dict[str, Any]:
    document = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    names = OUTPUT_NAMES.get(message.DESCRIPTOR.name, {})
    return {names.get(name, name): value for name, value in document.items()}
