"""Heads of HTTP responses as cameras write them, with lines that are no header fields."""

import re

MAX_HEAD = 32 * 1024  # bytes of a head that is looked at; a camera's has some hundred
_END = re.compile(rb"\r?\n\r?\n")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~\w-]+)[ \t]*(:.*)", re.ASCII | re.DOTALL)


def head_end(data: bytes | bytearray, searched: int = 0) -> int:
    """The offset behind the empty line that ends the head which `data` begins with; -1: it has not come.

    It is known not to be within the first `searched` bytes.
    """
    found = _END.search(data, max(0, searched - 3), MAX_HEAD)
    return found.end() if found else -1


def mended_head(head: bytes) -> bytes:
    """`head` without the lines that are no fields, as a date without its name, and without blanks before a colon."""
    first, *lines = head.splitlines(keepends=True)
    kept = [first]
    for line in lines:
        if found := _FIELD.fullmatch(line):
            kept.append(found[1] + found[2])
        elif line[:1] in b" \t\r\n":  # the rest of a field, or the empty line
            kept.append(line)
    return b"".join(kept)
