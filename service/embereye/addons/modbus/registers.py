"""The places of a sensor's quantities in a Modbus server, and the conversion of what is read there.

A place is written `AREA:ADDRESS[:TYPE[:SCALE[:OFFSET]]][=VALUE|VALUE]`. AREA is coil, discrete, input or holding.
Registers have a TYPE: uint16, int16, uint32, int32 or float32, where a suffix `le` means the low word first, or bitN
for one bit of a register. The value is raw * SCALE + OFFSET. With =VALUE, a binary quantity is on at these raw values,
otherwise at any but 0. Pure.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from embereye.wire.readings.quantity import QUANTITIES, Reading

Area = Literal["coil", "discrete", "input", "holding"]
BIT_AREAS = {"coil", "discrete"}
FORMATS = {"uint16": ">H", "int16": ">h", "uint32": ">I", "int32": ">i", "float32": ">f"}
FORM = "AREA:ADDRESS[:TYPE[:SCALE[:OFFSET]]][=VALUE|VALUE], such as discrete:0 or input:10:int16:0.1"
_PLACE = re.compile(
    r"(?P<area>coil|discrete|input|holding):(?P<address>\d{1,5})"
    r"(?::(?P<type>uint16|int16|(?:uint32|int32|float32)(?:le)?|bit(?:\d|1[0-5])))?"
    r"(?::(?P<scale>-?[\d.]{1,12}(?:e-?\d{1,2})?))?(?::(?P<offset>-?[\d.]{1,12}))?"
    r"(?:=(?P<on>-?\d{1,10}(?:\|-?\d{1,10}){0,15}))?"
)


@dataclass(frozen=True)
class Register:
    """One quantity's place."""

    quantity: str  # a name in QUANTITIES
    area: Area
    address: int  # 0..65535, as on the wire
    type: str = "uint16"
    scale: float = 1.0
    offset: float = 0.0
    on: frozenset[int] = frozenset()  # raw values at which a binary quantity is on; empty: all but 0

    @property
    def count(self) -> int:
        """The number of registers or bits to read."""
        return 2 if "32" in self.type and self.area not in BIT_AREAS else 1

    def reading(self, words: Sequence[int]) -> Reading:
        """Convert the `count` words or bits that were read; ValueError if they are no number."""
        raw = self._raw(words)
        if QUANTITIES[self.quantity].is_binary:
            return Reading(self.quantity, float(raw in self.on if self.on else raw != 0))
        value = raw * self.scale + self.offset
        if not -1e9 < value < 1e9:  # also refuses NaN
            raise ValueError(f"{self.quantity}: {value:g} is no sensible value. Check the type and word order")
        return Reading(self.quantity, value)

    def _raw(self, words: Sequence[int]) -> float:
        if self.area in BIT_AREAS:
            return int(words[0])
        if self.type.startswith("bit"):
            return words[0] >> int(self.type.removeprefix("bit")) & 1
        ordered = list(reversed(words)) if self.type.endswith("le") else words
        data = b"".join(word.to_bytes(2, "big") for word in ordered)
        (raw,) = struct.unpack(FORMATS[self.type.removesuffix("le")], data)
        return float(raw)


def parse_register(quantity: str, text: str) -> Register:
    """Parse a place; ValueError says what is wrong."""
    if quantity not in QUANTITIES:
        raise ValueError(f'fields: "{quantity[:40]}" is not one of {", ".join(QUANTITIES)}')
    match = _PLACE.fullmatch(text.strip())
    if not match or int(match["address"]) > 65_535:
        raise ValueError(f'fields.{quantity}: "{text[:60]}" is not of the form {FORM}')
    if match["area"] in BIT_AREAS and match["type"]:
        raise ValueError(f'fields.{quantity}: "{text[:60]}": a {match["area"]} is one bit and has no type')
    try:
        scale, offset = float(match["scale"] or 1), float(match["offset"] or 0)
    except ValueError as error:
        raise ValueError(f'fields.{quantity}: "{text[:60]}": scale and offset are numbers') from error
    values = frozenset(map(int, match["on"].split("|"))) if match["on"] else frozenset[int]()
    area: Area = match["area"]  # type: ignore[assignment]
    return Register(quantity, area, int(match["address"]), match["type"] or "uint16", scale, offset, values)


def parse_registers(fields: Mapping[str, str]) -> tuple[Register, ...]:
    """Parse the places of all quantities of a sensor; ValueError."""
    if not fields:
        raise ValueError(f"fields is missing: name the place of each quantity, {FORM}")
    return tuple(parse_register(quantity, text) for quantity, text in fields.items())
