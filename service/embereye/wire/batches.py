"""Decode one device's gRPC batches into numpy arrays of sequence numbers and rows, in either packing.

`Request` is `IngestRequest` on the wire, but leaves each reading and each packed list undecoded, as bytes: making
five hundred Python objects, one per reading, costs ten times as much as everything else.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from embereye.units import counted
from embereye.v1 import ingest_pb2
from embereye.v1.ingest_pb2 import Reading, ReadingColumns

CHANNELS = ("smoke_adc", "flame_adc", "gas_adc", "flame_detected")
_NAN = np.float32(np.nan).tobytes()
_TIME, _FLAME_DETECTED = 2, 6  # field numbers of varints in Reading
_FLOATS = {3: 0, 4: 1, 5: 2}  # field number → column


def _raw_messages() -> tuple[Any, Any]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="embereye/internal/raw_ingest.proto",
        package="embereye.internal",
        syntax="proto3",
        dependency=[ingest_pb2.DESCRIPTOR.name],
    )
    messages: dict[str, list[tuple[str, int, Any, Any, str]]] = {
        "RawColumns": [
            ("first_sequence", 1, field.TYPE_UINT64, field.LABEL_OPTIONAL, ""),
            *(
                (name, number, field.TYPE_BYTES, field.LABEL_REPEATED, "")
                for number, name in enumerate(("time_ns", *CHANNELS), 2)
            ),
        ],
        "RawBatch": [
            ("device", 1, field.TYPE_STRING, field.LABEL_OPTIONAL, ""),
            ("epoch", 2, field.TYPE_UINT64, field.LABEL_OPTIONAL, ""),
            ("readings", 3, field.TYPE_BYTES, field.LABEL_REPEATED, ""),
            ("columns", 4, field.TYPE_BYTES, field.LABEL_REPEATED, ""),
            ("frames", 5, field.TYPE_MESSAGE, field.LABEL_REPEATED, ".embereye.v1.ThermalFrame"),
            ("calibration", 6, field.TYPE_BYTES, field.LABEL_OPTIONAL, ""),
            ("restart", 7, field.TYPE_BOOL, field.LABEL_OPTIONAL, ""),
        ],
        "RawRequest": [("devices", 1, field.TYPE_MESSAGE, field.LABEL_REPEATED, ".embereye.internal.RawBatch")],
    }
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for name, number, kind, label, type_name in fields:
            described.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"embereye.internal.{name}"))
        for name in ("RawRequest", "RawColumns")
    )  # type: ignore[return-value]


Request, _RawColumns = _raw_messages()
_channels = attrgetter(*CHANNELS)


class Blocks(NamedTuple):
    """The decoded contents of several `ReadingColumns`, one after the other."""

    firsts: list[int]  # sequence number of the first reading of each message
    counts: list[int]  # readings in each message
    rows: NDArray[np.float64]  # (n, 4), the readings of all messages; NaN: no value sent


def decode_columns(serialized: Sequence[Sequence[bytes]]) -> Blocks:
    """Decode serialized `ReadingColumns`, each given in one or more parts. DecodeError if one is malformed.

    Values missing at the end of a short column become NaN.
    """
    firsts: list[int] = []
    counts: list[int] = []
    lists: list[list[bytes]] = [[] for _ in CHANNELS]
    for parts in serialized:
        columns = _raw_columns(_joined(parts))
        count = _count(_joined(columns.time_ns))
        firsts.append(columns.first_sequence)
        counts.append(count)
        for packed, channel in zip(lists, _channels(columns), strict=True):
            values = _joined(channel)
            packed.append(values if len(values) == 4 * count else _as_long(values, count))
    # A packed list of floats is encoded as the little-endian numbers themselves.
    text = b"".join([values for packed in lists for values in packed])
    table = np.frombuffer(text, "<f4").astype(np.float64).reshape(4, -1)
    digital = table[3]
    if np.count_nonzero(digital):  # NaN, or a sender that encodes true as another number than 1
        table[3] = np.where(np.isnan(digital), np.nan, digital != 0)
    return Blocks(firsts, counts, table.T)


def _raw_columns(text: bytes) -> Any:
    columns = _RawColumns.FromString(text)
    if len(UnknownFieldSet(columns)):
        # Not packed: a sender may write a list number by number, and every reader has to accept that.
        columns = _RawColumns.FromString(ReadingColumns.FromString(text).SerializeToString())
    return columns


def _count(times: bytes) -> int:
    """The number of packed times. Their values are not needed; the last byte of each has no high bit."""
    octets = np.frombuffer(times, np.int8)
    if len(octets) and octets[-1] < 0:
        raise DecodeError("time_ns: the last value is truncated")
    return int(np.count_nonzero(octets >= 0))


def _as_long(packed: bytes, count: int) -> bytes:
    """Pad or cut `packed` to `count` floats; missing values become NaN."""
    if len(packed) % 4:
        raise DecodeError(f"a list of {counted(len(packed), 'byte')} is not a whole number of floats")
    return packed[: 4 * count] + _NAN * (count - len(packed) // 4)


def _joined(parts: Sequence[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decode_readings(readings: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Decode serialized `Reading` messages into sequence numbers (n,) and rows (n, 4).

    Missing values are NaN. DecodeError if a message is malformed.
    """
    readings = list(readings)  # each access creates a new object
    lengths = list(map(len, readings))
    sequences = np.empty(len(readings), np.int64)
    rows = np.full((len(readings), 4), np.nan)
    for length in sorted(set(lengths)):
        positions: NDArray[np.int64] | slice = slice(None)
        alike = readings
        if lengths.count(length) < len(lengths):
            positions = np.flatnonzero(np.array(lengths) == length)
            alike = [readings[number] for number in positions.tolist()]
        if len(alike) > 4 and (block := _decode_alike(b"".join(alike), len(alike), length)):
            sequences[positions], rows[positions] = block
        else:
            sequences[positions], rows[positions] = zip(*map(_decode_one, alike), strict=True)
    return sequences, rows


def _decode_one(text: bytes) -> tuple[int, list[float]]:
    reading: Any = Reading.FromString(text)
    return reading.sequence, [getattr(reading, name) if reading.HasField(name) else np.nan for name in CHANNELS]


def _decode_alike(text: bytes, count: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """Decode `count` readings of `length` bytes whose fields are all where the first has them; None if they are not."""
    fields = _layout(text[:length])
    if fields is None:
        return None
    # Field numbers must be equal, and varints equally long: the highest bit of each byte gives a varint's length.
    mask = bytearray(b"\xff" * length)
    for number, start, stop in fields:
        mask[start:stop] = (b"\x00" if number in _FLOATS else b"\x80") * (stop - start)
    flat = np.frombuffer(text, np.uint8)
    difference = flat ^ np.frombuffer(text[:length] * count, np.uint8)
    difference &= np.frombuffer(bytes(mask) * count, np.uint8)
    if difference.any():
        return None
    matrix = flat.reshape(count, length)
    sequences = np.zeros(count, np.int64)
    rows = np.full((count, 4), np.nan)
    for number, start, stop in fields:
        if number in _FLOATS:
            rows[:, _FLOATS[number]] = np.ndarray((count,), "<f4", text, start, (length,))
        elif number == _FLAME_DETECTED:
            rows[:, 3] = (matrix[:, start:stop] & 127).any(axis=1)
        elif number == 1:
            for place in range(stop - start):
                sequences |= (matrix[:, start + place] & np.int64(127)) << (7 * place)
    return sequences, rows


def _layout(text: bytes) -> list[tuple[int, int, int]] | None:
    """(field number, start, end) of each value in a serialized `Reading`; None if fields are unknown or repeated."""
    fields = []
    position = 0
    while position < len(text):
        number, kind = text[position] >> 3, text[position] & 7
        start = position = position + 1
        if kind == 5 and number in _FLOATS:
            position += 4
        elif kind == 0 and number in {1, _TIME, _FLAME_DETECTED}:
            while position < len(text) and text[position] & 128:
                position += 1
            position += 1
            if position - start > 9:
                return None
        else:
            return None
        if position > len(text):
            return None
        fields.append((number, start, position))
    return fields if len({number for number, _, _ in fields}) == len(fields) else None


def count_fields(text: bytes, limit: int) -> int:
    """Count the fields of a serialized message without parsing it; stop as soon as there are more than `limit`.

    If the message is malformed, return the count so far: the parser will refuse the message anyway.
    """
    count, start, size = 0, 0, len(text)
    while start < size and count <= limit:
        tag, start = _varint(text, start)
        match tag & 7:
            case 0:
                _, start = _varint(text, start)
            case 1:
                start += 8
            case 2:
                length, start = _varint(text, start)
                start += length
            case 5:
                start += 4
            case _:
                return count
        count += 1
    return count


def _varint(text: bytes, start: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(start, min(start + 10, len(text))):
        value |= (text[place] & 0x7F) << shift
        if text[place] < 0x80:
            return value, place + 1
        shift += 7
    return value, len(text)
