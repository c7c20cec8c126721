"""Reads ELF files of any architecture: their machine, the libraries that they need, and the part that is loaded.

Format: System V ABI, chapters 4 and 5; 64-bit little-endian files only.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"\x7fELF\x02\x01"
MACHINES = {62: "amd64", 183: "arm64"}
_LOAD, _DYNAMIC = 1, 2  # types of program headers
_NEEDED, _STRINGS, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29  # tags of the dynamic section


@dataclass(frozen=True)
class Elf:
    """The parts of an ELF file that its loader uses."""

    machine: str  # Debian's name of the architecture, or a number in text
    needed: tuple[str, ...]  # file names of libraries
    search: tuple[str, ...]  # folders for them, perhaps with $ORIGIN


def is_elf(data: bytes) -> bool:
    """True for a 64-bit little-endian ELF file."""
    return data.startswith(MAGIC) and len(data) >= 64


def read(data: bytes) -> Elf:
    """Read an ELF file. Raises ValueError for other data."""
    if not is_elf(data):
        raise ValueError("it is no 64-bit little-endian ELF file")
    (machine,) = struct.unpack_from("<H", data, 18)
    segments = list(_segments(data))
    tags: list[tuple[int, int]] = []
    for kind, offset, _, size, _ in segments:
        if kind == _DYNAMIC:
            tags = [struct.unpack_from("<qQ", data, at) for at in range(offset, offset + size, 16)]
    strings = next((_offset_of(address, segments) for tag, address in tags if tag == _STRINGS), 0)

    def text(position: int) -> str:
        start = strings + position
        return data[start : data.index(b"\0", start)].decode()

    needed = tuple(text(value) for tag, value in tags if tag == _NEEDED)
    search = tuple(folder for tag, value in tags if tag in (_RPATH, _RUNPATH) for folder in text(value).split(":"))
    return Elf(MACHINES.get(machine, str(machine)), needed, search)


def cut(data: bytes) -> bytes:
    """Remove everything from an ELF file that its loader does not use: symbols of linkers, debug information, sections.

    Segments remain as they are and move closer together in the file; their addresses do not change. Unlike strip(1),
    this is safe for libraries whose headers were rewritten when they were bundled into a wheel, and works for every
    architecture.
    """
    start, entry, count = _headers(data)
    segments = list(_segments(data))
    page = max([4096, *(align for kind, _, _, _, align in segments if kind == _LOAD)])
    parts = _merge([(0, 64), (start, start + entry * count), *((each[1], each[1] + each[3]) for each in segments)])
    lean, moved = bytearray(), []
    for begin, end in parts:
        lean += bytes((begin - len(lean)) % page)  # a segment's place and its address agree within a page
        moved.append((begin, end, len(lean) - begin))
        lean += data[begin:end]
    if len(lean) >= len(data):
        return data

    def place(offset: int) -> int:
        return offset + next((by for begin, end, by in moved if begin <= offset < end), 0)

    for number, (_, offset, _, size, _) in enumerate(segments):
        if size:
            struct.pack_into("<Q", lean, place(start) + number * entry + 8, place(offset))
    struct.pack_into("<QQ", lean, 32, place(start), 0)  # the program headers; there are no section headers
    struct.pack_into("<HH", lean, 60, 0, 0)  # count of the section headers, and the index of their names
    return bytes(lean)


def _merge(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join overlapping and adjacent parts of a file, begin and end, in their order."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(part for part in parts if part[0] < part[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _headers(data: bytes) -> tuple[int, int, int]:
    """The place of the program headers, the size of each, and their count."""
    return struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield type, place in the file, address, size in the file and alignment of each segment."""
    start, entry, count = _headers(data)
    for at in range(start, start + entry * count, entry):
        kind, _, offset, address, _, size, _, align = struct.unpack_from("<IIQQQQQQ", data, at)
        yield kind, offset, address, size, align


def _offset_of(address: int, segments: list[tuple[int, int, int, int, int]]) -> int:
    """The place in the file of what is loaded at `address`."""
    for kind, offset, start, size, _ in segments:
        if kind == _LOAD and start <= address < start + size:
            return offset + address - start
    raise ValueError(f"no segment has the address {address:#x}")


def faults(root: Path, architecture: str, system: tuple[str, ...]) -> list[str]:
    """List files below `root` that are for another architecture, or need a library that is not there.

    `system` are the folders in which the loader looks for every library, relative to `root`.
    """
    problems: list[str] = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or not is_elf(data := path.read_bytes()):
            continue
        elf, name = read(data), path.relative_to(root)
        if elf.machine != architecture:
            problems.append(f"/{name} is for {elf.machine}")
            continue
        named = [Path(folder.replace("$ORIGIN", str(path.parent))) for folder in elf.search]
        folders = [*named, path.parent, *(root / folder for folder in system)]
        problems += [
            f"/{name} needs {library}, which is missing"
            for library in elf.needed
            if not any(os.path.lexists(folder / library) for folder in folders)
        ]
    return problems
