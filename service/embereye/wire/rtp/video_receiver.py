"""Assemble access units from H.264 and H.265 over RTP, in decoding order.

Packets are put in order, their payloads joined to NAL units, and those to access units by an `Assembler`. A gap in the
sequence numbers is a loss after `window` packets behind it, or after `deadline_ns`.
"""

from collections.abc import Iterable, Sequence

from embereye.wire.rtp.nal_payload import H264Format, H265Format, NalFormat, NalPart
from embereye.wire.rtp.packet import FIXED, MARKER, RTCP_TYPES, Arrival, Packet, PacketReception
from embereye.wire.rtp.payload_header import PayloadError
from embereye.wire.rtp.receiver import DEADLINE_NS, TAKEOVER_NS, PictureReceiver
from embereye.wire.rtp.reorder import WINDOW, ReorderBuffer
from embereye.wire.video.access_unit import MAX_UNIT, AccessUnit, Assembler
from embereye.wire.video.h264 import H264
from embereye.wire.video.h265 import H265
from embereye.wire.video.nal import Codec, split_joined

CODECS: dict[str, tuple[Codec, NalFormat]] = {"H264": (H264(), H264Format()), "H265": (H265(), H265Format())}


class VideoReceiver(PictureReceiver):
    """Assembles the access units of one sender from its packets. Raises no exceptions.

    `encoding` is H264 or H265, `sets` the parameter sets of the SDP. A gap in the sequence numbers is a loss after
    `window` packets behind it or `deadline_ns`. `alone`: nobody else can send over this connection.
    """

    def __init__(
        self, encoding: str, payload_type: int, sets: Iterable[bytes] = (), deadline_ns: int = DEADLINE_NS,
        window: int = WINDOW, *, alone: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(payload_type, deadline_ns)
        codec, self._format = CODECS[encoding]
        # First words of packets that have neither an extension nor padding; with a marker, some types look like RTCP.
        marked = {self._plain | MARKER} if MARKER | payload_type not in RTCP_TYPES else set[int]()
        self._plain_words = marked | {self._plain}
        self._assembler = Assembler(codec, sets)
        self._ordered: ReorderBuffer[Packet] = ReorderBuffer(deadline_ns, window)
        self._alone = alone
        self._successor: Packet | None = None  # the first packet of the next sender
        self._left = -1, 0  # SSRC of the previous sender, and when it was last heard
        self._fragments: list[bytes] = []  # of the NAL unit that is arriving
        self._fragment_bytes = 0  # total size of `_fragments`
        self._head = b""  # header of the NAL unit that is arriving
        self._timestamp = -1  # of the previous packet
        self._marked = False  # the sender marks the last packet of a picture, so a picture ends only with a mark

    @property
    def has_pending(self) -> bool:
        """True if a picture is arriving; then `poll` must be called from time to time."""
        return self._ordered.has_waiting or self._assembler.is_open

    @property
    def is_awaiting_key(self) -> bool:
        """True if pictures arrive, but none yet that decoding can start at."""
        return not self.counts.pictures and self._assembler.skipped > 0

    def feed_joined(self, packets: memoryview, size: int, now_ns: int) -> Sequence[AccessUnit]:
        """Accept packets of `size` bytes, joined in `packets`; the last may be shorter.

        `now_ns` is a monotonic clock. Return the access units that they complete.
        """
        units: list[AccessUnit] = []
        for start in range(0, len(packets), size or 1):
            packet = packets[start : start + size]
            if not self._accept_expected(packet, now_ns, units):
                units += self._receive(packet, now_ns)
        return units

    def _accept_expected(self, data: memoryview, now_ns: int, units: list[AccessUnit]) -> bool:
        """Accept `data` if it is the next packet of the present sender and its header has no options; True if it was.

        Add the access units that it completes to `units`. Nearly all packets are such, so this does without the checks
        of `_receive`. It does even less for a fragment that neither begins nor ends a NAL unit.
        """
        form, reception = self._format, self.reception
        if len(data) <= FIXED.size + form.fragment_header:
            return False
        lead, sequence, timestamp, ssrc = FIXED.unpack_from(data)
        number = reception.extended + 1
        if (
            lead not in self._plain_words
            or sequence != number & 0xFFFF
            or ssrc != self.ssrc
            or number != self._ordered.expected
            or self._ordered.has_waiting
        ):
            return False
        reception.extended = number
        reception.received += 1
        self._ordered.skip_expected()
        self._heard_ns = now_ns
        payload = data[FIXED.size :]
        if self._fragments and lead == self._plain and timestamp == self._timestamp:
            size = self._fragment_bytes + len(payload) - form.fragment_header
            if size <= MAX_UNIT and form.inner_fragment(payload) == self._head:
                self._fragments.append(bytes(payload[form.fragment_header :]))
                self._fragment_bytes = size
                return True
        self._successor = None
        if timestamp != self._timestamp:
            reception.note_arrival(timestamp, now_ns)
        marker = lead != self._plain
        self._unpack(Packet(self._payload_type, marker, sequence, timestamp, ssrc, payload), units, lost=False)
        return True

    def poll(self, now_ns: int) -> Sequence[AccessUnit]:
        """Return the access units that are complete, or overdue, at `now_ns`."""
        units: list[AccessUnit] = []
        for packet, lost in self._ordered.expire(now_ns):
            self._unpack(packet, units, lost=lost)
        marked = self._marked and not self._assembler.split_pictures
        arriving = marked or self._ordered.has_waiting or self._fragments
        if self._assembler.is_open and not arriving and now_ns - self._heard_ns >= self._deadline_ns:
            self._count(self._assembler.finish(), units)
        return units

    def _receive(self, data: memoryview, now_ns: int) -> list[AccessUnit]:
        if (packet := self._parse(data)) is None:
            return []
        if packet.ssrc == self.ssrc:
            self._successor = None
            return self._accept(packet, now_ns)
        if self.ssrc >= 0 and not self._is_successor(packet, now_ns):
            return []
        units = self._start_over()
        self.ssrc = packet.ssrc
        self.reception = PacketReception()
        if self._successor:
            units += self._accept(self._successor, now_ns)
            self._successor = None
        return units + self._accept(packet, now_ns)

    def _accept(self, packet: Packet, now_ns: int) -> list[AccessUnit]:
        """Return the access units that `packet` of the present sender completes."""
        units: list[AccessUnit] = []
        arrival = self.reception.count_packet(packet.sequence)
        if arrival is Arrival.STRAY:
            return units
        if arrival is Arrival.RESTART:
            units += self._start_over()
        self._heard_ns = now_ns
        if packet.timestamp != self._timestamp:
            self.reception.note_arrival(packet.timestamp, now_ns)
        # A waiting packet needs a copy of its payload, because the memory belongs to the caller.
        newest = self.reception.extended
        number = newest - (newest - packet.sequence & 0xFFFF)
        if number != self._ordered.expected:
            packet = _copied(packet)
        elif not self._ordered.has_waiting:
            self._ordered.skip_expected()
            self._unpack(packet, units, lost=False)
            return units
        for ordered, lost in self._ordered.put(number, packet, now_ns):
            self._unpack(ordered, units, lost=lost)
        return units

    def _is_successor(self, packet: Packet, now_ns: int) -> bool:
        """Count a packet of another sender. True if it replaces the present one."""
        silent_ns = now_ns - self._heard_ns
        if not self._alone:
            admitted = self._probation.admit(packet, silent_ns)
            self.counts.strangers += not admitted
            return admitted
        # Some cameras change the SSRC at every key frame. If the previous SSRC continues as well, it is another stream:
        # some servers send a stream over a connection that it does not belong to.
        left, heard_ns = self._left
        if packet.ssrc == left and now_ns - heard_ns < TAKEOVER_NS and silent_ns < TAKEOVER_NS:
            self._left = left, now_ns
            return False
        first = self._successor
        if first is None or (packet.ssrc, packet.sequence) != (first.ssrc, first.sequence + 1 & 0xFFFF):
            self._successor = _copied(packet)  # perhaps a stray one
            return False
        self._left = self.ssrc, self._heard_ns
        return True

    def _start_over(self) -> list[AccessUnit]:
        """Complete what is arriving: another sender, or a restarted one, does not continue it."""
        units: list[AccessUnit] = []
        for packet, lost in self._ordered.flush():
            self._unpack(packet, units, lost=lost)
        self._drop_fragments()
        if self.ssrc >= 0:
            self._count(self._assembler.note_loss(None), units)
        self._timestamp = -1
        return units

    def _unpack(self, packet: Packet, units: list[AccessUnit], *, lost: bool) -> None:
        """Add the access units that `packet` completes to `units`."""
        if lost or (packet.timestamp != self._timestamp and self._fragments):
            self._drop_fragments()
            self._count(self._assembler.note_loss(packet.timestamp), units)
        self._timestamp = packet.timestamp
        try:
            parts = self._format.parts(packet.payload)
        except PayloadError as error:
            self._refuse(str(error))
            self._count(self._assembler.note_loss(packet.timestamp), units)
            return
        for part in parts:
            if (whole := self._complete_nal(part)) is None:
                continue
            for nal in split_joined(whole):
                self._count(self._assembler.add(nal, packet.timestamp), units)
        self._marked |= packet.marker
        if packet.marker and not self._assembler.split_pictures:
            self._drop_fragments()
            self._count(self._assembler.finish(), units)

    def _complete_nal(self, part: NalPart) -> bytes | None:
        """Return the NAL unit that `part` completes; None if it completes none."""
        if part.start:
            self._drop_fragments()
            if part.end:
                return part.data
        elif not self._fragments:  # its beginning was lost, or never sent
            self._assembler.note_fragment(self._timestamp, part.head)
            return None
        self._head = part.head
        self._fragments.append(part.data)
        self._fragment_bytes += len(part.data)
        if self._fragment_bytes > MAX_UNIT:
            self._drop_fragments()
        if not part.end or not self._fragments:
            return None
        nal = b"".join(self._fragments)
        self._fragments.clear()
        self._fragment_bytes = 0
        return nal

    def _drop_fragments(self) -> None:
        """Drop a NAL unit whose end is lost."""
        if self._fragments:
            self._fragments.clear()
            self._fragment_bytes = 0
            self._assembler.note_fragment(self._timestamp, self._head)

    def _count(self, unit: AccessUnit | None, units: list[AccessUnit]) -> None:
        if unit is None:
            return
        self.counts.pictures += 1
        if unit.damaged:
            self.counts.unusable += 1
            self.counts.problem = unit.damaged
        units.append(unit)


def _copied(packet: Packet) -> Packet:
    return Packet(packet.payload_type, packet.marker, packet.sequence, packet.timestamp, packet.ssrc,
                  memoryview(bytes(packet.payload)))  # fmt: skip
