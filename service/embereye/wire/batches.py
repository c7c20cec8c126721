"""gRPC batches of one device to numbers, in numpy: sequences and rows, whichever way the sender packed them.

`Request` and `Batch` are `IngestRequest` and `DeviceBatch` on the wire, but leave each reading as bytes: to read five
fields of five hundred message objects one by one costs ten times what everything else does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray

from embereye.v1 import ingest_pb2
from embereye.v1.ingest_pb2 import Reading, ReadingColumns

CHANNELS = ("smoke_adc", "flame_adc", "gas_adc", "flame_detected")
Block = tuple[NDArray[np.int64], NDArray[np.float64]]  # (n,) sequences, (n, 4) rows; NaN: not said
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
    batch = file.message_type.add(name="RawBatch")
    for name, number, kind, label, type_name in (
        ("device", 1, field.TYPE_STRING, field.LABEL_OPTIONAL, ""),
        ("epoch", 2, field.TYPE_UINT64, field.LABEL_OPTIONAL, ""),
        ("readings", 3, field.TYPE_BYTES, field.LABEL_REPEATED, ""),
        ("columns", 4, field.TYPE_MESSAGE, field.LABEL_OPTIONAL, ".embereye.v1.ReadingColumns"),
        ("frames", 5, field.TYPE_MESSAGE, field.LABEL_REPEATED, ".embereye.v1.ThermalFrame"),
        ("calibration", 6, field.TYPE_BYTES, field.LABEL_OPTIONAL, ""),
    ):
        batch.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    file.message_type.add(name="RawRequest").field.add(
        name="devices",
        number=1,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=".embereye.internal.RawBatch",
    )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"embereye.internal.{name}"))
        for name in ("RawRequest", "RawBatch")
    )  # type: ignore[return-value]


Request, Batch = _raw_messages()


def columns_block(columns: ReadingColumns) -> Block:
    """What packed columns say; a column that is too short has no more values."""
    rows = columns_rows(columns)
    return np.arange(columns.first_sequence, columns.first_sequence + len(rows), dtype=np.int64), rows


def columns_rows(columns: ReadingColumns) -> NDArray[np.float64]:
    """The rows of `columns_block`."""
    count = len(columns.time_ns)
    table = np.empty((4, count))
    for number, column in enumerate((columns.smoke_adc, columns.flame_adc, columns.gas_adc, columns.flame_detected)):
        if len(column) == count:
            table[number] = column
        else:
            table[number] = np.nan
            table[number, : len(column)] = column[:count]
    digital = table[3]
    if ((digital != 0) & (digital != 1)).any():  # NaN, or a sender with its own idea of true
        table[3] = np.where(np.isnan(digital), np.nan, digital != 0)
    return table.T


def readings_block(readings: Sequence[bytes]) -> Block:
    """What readings, each a serialized `Reading`, say. DecodeError where one is not one."""
    lengths = np.array(list(map(len, readings)))
    sequences = np.empty(len(readings), np.int64)
    rows = np.full((len(readings), 4), np.nan)
    text = np.frombuffer(b"".join(readings), np.uint8)
    starts = np.cumsum(lengths) - lengths
    for length in sorted(set(lengths.tolist())):
        chosen = np.flatnonzero(lengths == length)
        same = text.reshape(-1, length) if len(chosen) == len(lengths) and length else None
        if same is None:
            same = text[starts[chosen][:, None] + np.arange(length)]
        if len(chosen) > 4 and _decode_alike(same, readings[chosen[0]], chosen, sequences, rows):
            continue
        for number in chosen.tolist():
            _decode_one(readings[number], number, sequences, rows)
    return sequences, rows


def _decode_one(text: bytes, number: int, sequences: NDArray[np.int64], rows: NDArray[np.float64]) -> None:
    reading = Reading.FromString(text)
    sequences[number] = reading.sequence
    for column, name in enumerate(CHANNELS):
        if reading.HasField(name):  # type: ignore[arg-type]
            rows[number, column] = getattr(reading, name)


def _decode_alike(
    matrix: NDArray[np.uint8],
    first: bytes,
    chosen: NDArray[np.int64],
    sequences: NDArray[np.int64],
    rows: NDArray[np.float64],
) -> bool:
    """Decode readings of one length that have the same fields in the same places as `first`; False where not."""
    fields = _layout(first)
    if fields is None:
        return False
    # Field numbers must be the same, and varints as long: their highest bits say how long they are.
    mask = np.full(len(first), 0xFF, np.uint8)
    for number, start, stop in fields:
        mask[start:stop] = 0 if number in _FLOATS else 0x80
    if ((matrix ^ np.frombuffer(first, np.uint8)) & mask).any():
        return False
    found = np.zeros(len(matrix), np.int64)
    everything = slice(None) if len(chosen) == len(rows) else chosen
    for number, start, stop in fields:
        if number in _FLOATS:
            values = np.ascontiguousarray(matrix[:, start:stop]).view("<f4")[:, 0]
            rows[everything, _FLOATS[number]] = values
        elif number == _FLAME_DETECTED:
            digital = matrix[:, start] & 127 if stop - start == 1 else (matrix[:, start:stop] & 127).max(axis=1)
            rows[everything, 3] = digital != 0
        elif number == 1:
            for place in range(stop - start):
                found |= (matrix[:, start + place] & np.int64(127)) << (7 * place)
    sequences[everything] = found
    return True


def _layout(text: bytes) -> list[tuple[int, int, int]] | None:
    """Field number, start and end of each value in a serialized `Reading`; None where it is not a usual one."""
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
