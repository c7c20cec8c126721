"""Files in which people declare an add-on: YAML or JSON with a few named fields, see `embereye.process.fields`.

An error names the option, the file, the line, the place and the remedy.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from embereye.process.fields import DeclaredError, Fields
from embereye.process.lifecycle import UserError
from embereye_operator.api.documents import DocumentError, line_of, read_document

T = TypeVar("T")


def read_declared(path: Path, option: str, parse: Callable[[Fields], T]) -> T:
    """Read the file at `path`, named by `option`, with `parse`; UserError names what is wrong."""
    try:
        return parse_declared(path.read_bytes(), parse)
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror or error}") from error
    except (DeclaredError, RecursionError) as error:
        raise UserError(f"{option} {path}: {error}") from error


def chosen(names: Sequence[str], declared: Mapping[str, T], kind: str) -> list[T]:
    """The values of `names`, or all of them without names; UserError for a name that is not declared."""
    for name in names:
        if name not in declared:
            raise UserError(f'no {kind} "{name[:80]}" is declared. Declared: {", ".join(declared) or "none"}.')
    return [declared[name] for name in names or declared]


def parse_declared(content: bytes | str, parse: Callable[[Fields], T]) -> T:
    """Read a file's content with `parse`; DeclaredError names the line and what is wrong."""
    try:
        return Fields(read_document(content)).parse(parse)
    except DocumentError as error:
        raise DeclaredError(str(error)) from error
    except DeclaredError as error:
        if not error.place:
            raise
        raise DeclaredError(f"line {line_of(content, 0, error.place)}: {error}", error.place) from error
