"""The format of a sensor's recording around an alarm: JSON lines. Pure.

The first line has the version, device and settings that the data was analysed with. Each further line is a moment with
the device's text lines. Readings from gRPC are written as equivalent text lines.
"""

import json
import math
from binascii import hexlify, unhexlify
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from google.protobuf import json_format

from embereye.levels import Level
from embereye.sensor.device.recent import Piece, PieceKind
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords, SensorReading

VERSION = version("embereye")


class RecordingError(ValueError):
    """The content is not a recording that this version can read."""


@dataclass(frozen=True)
class Judged:
    """The conditions under which a device's data was analysed while it was recorded."""

    device: Device
    settings: SensorSettings  # the fleet's
    level: Level  # the highest reported level of the recorded sign
    eeprom: bytes = b""  # words of the calibration in use at the start; b"": none
    replaced: tuple[int, ...] = ()  # thermal pixels that were replaced by their neighbours
    version: str = VERSION


@dataclass(frozen=True)
class Moment:
    """The lines that a device sent at one moment."""

    time_ns: int
    text: bytes  # whole lines


def write_recording(judged: Judged, pieces: Iterable[Piece]) -> bytes:
    """Encode a recording."""
    head = {
        "embereye": judged.version,
        "device": json_format.MessageToDict(judged.device),
        "settings": json_format.MessageToDict(judged.settings),
        "level": judged.level.name,
        "eeprom": hexlify(judged.eeprom).decode(),
        "replaced": list(judged.replaced),
    }
    lines = [json.dumps(head, separators=(",", ":"))]
    for piece in pieces:
        if text := _text(piece):
            moment = {"timeNs": str(piece.time_ns), "lines": text.decode("latin-1")}
            lines.append(json.dumps(moment, separators=(",", ":")))
    return "\n".join([*lines, ""]).encode()


def _text(piece: Piece) -> bytes:
    """Convert `piece` to text lines, without empty readings."""
    match piece.kind:
        case PieceKind.LINES:
            return piece.data
        case PieceKind.FRAME:
            return encode(FrameWords(None, piece.data))
        case PieceKind.EEPROM:
            return encode(Eeprom(None, piece.data))
    rows = np.frombuffer(piece.data, np.float64).reshape(-1, 4).tolist()
    return b"".join(encode(reading) for row in rows if (reading := _reading(row)) is not None)


def _reading(row: list[float]) -> SensorReading | None:
    smoke, flame, gas, digital = (value if math.isfinite(value) else None for value in row)
    if smoke is None and flame is None and gas is None and digital is None:
        return None
    return SensorReading(None, smoke, flame, gas, None if digital is None else digital != 0)


def read_recording(content: bytes) -> tuple[Judged, Iterator[Moment]]:
    """Decode a recording: its conditions and its moments. RecordingError, also while the moments are iterated."""
    first, *rest = content.decode("utf-8", "replace").splitlines() or [""]
    try:
        head: dict[str, Any] = json.loads(first)
        judged = Judged(
            device=json_format.ParseDict(head["device"], Device(), ignore_unknown_fields=True),
            settings=json_format.ParseDict(head["settings"], SensorSettings(), ignore_unknown_fields=True),
            level=Level[head["level"]],
            eeprom=unhexlify(head["eeprom"]),
            replaced=tuple(map(int, head["replaced"])),
            version=str(head["embereye"]),
        )
    except (ValueError, KeyError, TypeError, json_format.ParseError) as error:
        raise RecordingError(f"the first line has no device, settings and version: {error}") from error
    return judged, _moments(rest)


def _moments(lines: Iterable[str]) -> Iterator[Moment]:
    for number, line in enumerate(lines, 2):
        try:
            moment = json.loads(line)
            yield Moment(int(moment["timeNs"]), str(moment["lines"]).encode("latin-1"))
        except (ValueError, KeyError, TypeError) as error:
            raise RecordingError(f"line {number} has no time and lines: {error}") from error
