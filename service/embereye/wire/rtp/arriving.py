"""A picture that is still arriving: the parts of its scan that have come, and their places.

The depacketizer has one for each incomplete picture, and stores payloads by their offset, in any order. Unless all came
in order, `received_runs` joins neighbouring parts to runs without gaps. If there are several, `restart.py` puts them in
place.
"""

from bisect import bisect
from dataclasses import dataclass, field
from operator import itemgetter

from embereye.wire.jpeg.header import EOI
from embereye.wire.jpeg.restart import Run
from embereye.wire.rtp.onvif_extension import JpegDescription
from embereye.wire.rtp.payload_header import FIRST, WHOLE_FRAME


@dataclass(slots=True, eq=False)
class ArrivingPicture:
    """The received parts of one picture. Offsets are bytes into its scan."""

    timestamp: int
    key: int  # type, Q, width and height, as on the wire
    skip: int  # bytes before the payload of a packet without tables
    sequence: int  # extended, of the first packet received
    parts: dict[int, bytes] = field(default_factory=dict)  # by offset; packets received joined are one part
    # For parts of several packets: their offsets, ascending, and the bytes of each packet.
    joined: list[tuple[int, int]] = field(default_factory=list)
    packets: int = 0
    reach: int = 0  # the highest offset behind a packet
    size: int = 0  # bytes received
    end: int = -1  # bytes of the scan; -1: its last packet is missing
    ordered: bool = True  # parts arrived in the order of their offsets
    interval: int = 0  # restart interval in MCUs
    chunks: dict[int, int] = field(default_factory=dict)  # offset → restart interval that starts there
    tables: bytes = b""  # DQT segments from this picture's packets
    described: JpegDescription | None = None  # from ONVIF's header extension
    touched_ns: int = 0
    newer: int = 0  # packets of newer pictures since it was last touched

    def mark(self, offset: int, count: int) -> None:
        """Note the restart count of the packet at `offset`."""
        if count & FIRST and count & WHOLE_FRAME != WHOLE_FRAME:
            self.chunks[offset] = count & WHOLE_FRAME

    def put(self, offset: int, payload: bytes, packets: int = 1) -> None:
        """Store the payload of the packet, or joined `packets`, at `offset`."""
        self.parts[offset] = payload
        self.packets += packets
        self.size += len(payload)
        self.reach = max(self.reach, offset + len(payload))

    def append(self, payload: bytes, step: int) -> None:
        """Store the payload of packets of `step` bytes each that continue at the highest offset."""
        self.joined.append((self.reach, step))
        self.put(self.reach, payload, len(payload) // step)

    def has_packet(self, offset: int) -> bool:
        """True if the packet at `offset` has been received."""
        if offset in self.parts:
            return True
        if not (before := bisect(self.joined, offset, key=itemgetter(0))):
            return False
        begin, step = self.joined[before - 1]
        return offset < begin + len(self.parts[begin]) and (offset - begin) % step == 0

    def pieces(self) -> list[tuple[int, bytes]]:
        """The offset and payload of every packet, in order."""
        payloads: dict[int, bytes] = {}
        steps = dict(self.joined)
        for begin, part in self.parts.items():
            step = steps.get(begin) or len(part) or 1
            payloads.update((begin + start, part[start : start + step]) for start in range(0, len(part), step))
        return sorted(payloads.items())


def received_runs(picture: ArrivingPicture) -> list[Run]:
    """The received runs of the scan, in order; where packets overlap, the first one counts."""
    runs: list[Run] = []
    pieces: list[bytes] = []
    start = end = 0

    def close(last: bool) -> None:
        if pieces:
            data = b"".join(pieces)
            if last and data.endswith(EOI):
                data = data[:-2]
            runs.append(Run(start, data, last, picture.chunks.get(start, -1) if start else -1))

    for place, payload in picture.pieces():
        part = payload[max(0, end - place) :]
        offset = max(place, end)
        anchored = start == 0 or start in picture.chunks
        if offset > end or not pieces or (offset in picture.chunks and not anchored):
            close(last=False)
            pieces, start = [], offset
        pieces.append(part)
        end = offset + len(part)
    close(last=end == picture.end)
    return [run for run in runs if run.data]
