"""Find and repair the heads of HTTP responses: some cameras write lines in them that are not header fields."""

import re

MAX_HEAD = 32 * 1024  # bytes of a head to search; a camera's has a few hundred
_END = re.compile(rb"\r?\n\r?\n")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~\w-]+)[ \t]*(:.*)", re.ASCII | re.DOTALL)


def head_end(data: bytes | bytearray, searched: int = 0) -> int:
    """The offset behind the empty line that ends the head at the start of `data`; -1 if it has not arrived.

    The first `searched` bytes have been searched before.
    """
    match = _END.search(data, max(0, searched - 3), MAX_HEAD)
    return match.end() if match else -1


def repaired_head(head: bytes) -> bytes:
    """Drop lines that are not fields, such as a date without its name, and blanks before a colon."""
    first, *lines = head.splitlines(keepends=True)
    fields = [first]
    for line in lines:
        if match := _FIELD.fullmatch(line):
            fields.append(match[1] + match[2])
        elif line[:1] in b" \t\r\n":  # the rest of a field, or the empty line
            fields.append(line)
    return b"".join(fields)
