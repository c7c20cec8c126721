"""H.264 and H.265 over RTP: packets become access units, in the order in which they are to be decoded."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from embereye.wire.rtp.depacketize import DEADLINE_NS, TAKEOVER_NS, Probation
from embereye.wire.rtp.nal_payload import H264Format, H265Format, NalFormat, NalPart
from embereye.wire.rtp.packet import FIXED, Arrival, Packet, PacketReception, RtpError, is_rtcp, parse_packet
from embereye.wire.rtp.payload_header import PayloadError
from embereye.wire.rtp.reorder import WINDOW, ReorderBuffer
from embereye.wire.video.access_unit import MAX_UNIT, AccessUnit, Assembler
from embereye.wire.video.h264 import H264
from embereye.wire.video.h265 import H265
from embereye.wire.video.nal import Codec, taken_apart

CODECS: dict[str, tuple[Codec, NalFormat]] = {"H264": (H264(), H264Format()), "H265": (H265(), H265Format())}


@dataclass
class VideoCounts:
    """What became of packets and pictures, since the start."""

    malformed: int = 0  # packets and NAL units
    other_payload: dict[int, int] = field(default_factory=dict)  # packets by payload type that is not ours
    strangers: int = 0  # packets of another sender than the one listened to
    pictures: int = 0
    damaged: int = 0  # pictures that must not be trusted
    problem: str = ""  # why the latest malformed packet or damaged picture was that


class VideoReceiver:
    """Accepts the packets of one sender. No input makes it raise.

    `encoding` is H264 or H265, `sets` the parameter sets of the SDP. A gap in the sequence numbers is a loss once
    `window` packets wait behind it or `deadline_ns` are over. `alone` means that nobody else can send by this way.
    """

    def __init__(
        self, encoding: str, payload_type: int, sets: Iterable[bytes] = (), deadline_ns: int = DEADLINE_NS,
        window: int = WINDOW, *, alone: bool = False,
    ) -> None:  # fmt: skip
        codec, self._format = CODECS[encoding]
        self.counts = VideoCounts()
        self.reception = PacketReception()
        self.ssrc = -1
        self._assembler = Assembler(codec, sets)
        self._payload_type = payload_type
        self._plain = 0x8000 | payload_type  # how a packet begins that has neither marker, extension nor padding
        self._ordered: ReorderBuffer[Packet] = ReorderBuffer(deadline_ns, window)
        self._deadline_ns = deadline_ns
        self._probation = Probation()
        self._alone = alone
        self._successor: Packet | None = None  # the first packet of who may be listened to next
        self._left = -1, 0  # the SSRC that was listened to before the present one, and when it was heard last
        self._heard_ns = 0
        self._fragments: list[bytes] = []  # of the NAL unit that is arriving
        self._held = 0  # bytes of them
        self._head = b""  # its header
        self._timestamp = -1  # of the packet before
        self._marked = False  # the sender marks the last packet of a picture: without a mark none has ended

    @property
    def pending(self) -> bool:
        """Whether a picture is arriving; while one is, `poll` has to be called now and then."""
        return self._ordered.waiting or self._assembler.open

    @property
    def awaits_key(self) -> bool:
        """Whether no picture has come yet that decoding could begin at, although pictures come."""
        return not self.counts.pictures and self._assembler.skipped > 0

    def feed_joined(self, packets: memoryview, size: int, now_ns: int) -> Sequence[AccessUnit]:
        """Accept packets of `size` bytes, the last one maybe shorter, joined in `packets`, at `now_ns` of any clock.

        Returns the access units that they complete.
        """
        found: list[AccessUnit] = []
        for start in range(0, len(packets), size or 1):
            packet = packets[start : start + size]
            if not (self._fragments and self._continue_fragments(packet, now_ns)):
                found += self._receive(packet, now_ns)
        return found

    def _continue_fragments(self, data: memoryview, now_ns: int) -> bool:
        """Accept a packet in order that holds neither the first nor the last part of the NAL unit that is arriving.

        Most packets of large pictures are such; False leaves one to `_receive`, which does the same in four times the
        time.
        """
        if len(data) <= FIXED.size + self._format.fragment_header:
            return False
        lead, sequence, timestamp, ssrc = FIXED.unpack_from(data)
        reception = self.reception
        number = reception.extended + 1
        if (
            lead != self._plain
            or sequence != number & 0xFFFF
            or timestamp != self._timestamp
            or ssrc != self.ssrc
            or number != self._ordered.expected
            or self._ordered.waiting
        ):
            return False
        payload = data[FIXED.size :]
        held = self._held + len(payload) - self._format.fragment_header
        if held > MAX_UNIT or self._format.inner_fragment(payload) != self._head:
            return False
        reception.extended = number
        reception.received += 1
        self._ordered.pass_over()
        self._heard_ns = now_ns
        self._fragments.append(bytes(payload[self._format.fragment_header :]))
        self._held = held
        return True

    def poll(self, now_ns: int) -> Sequence[AccessUnit]:
        """The access units that are complete as far as they will be at `now_ns`."""
        found: list[AccessUnit] = []
        for packet, lost in self._ordered.expire(now_ns):
            self._unpack(packet, found, lost=lost)
        marked = self._marked and not self._assembler.split_pictures
        arriving = marked or self._ordered.waiting or self._fragments
        if self._assembler.open and not arriving and now_ns - self._heard_ns >= self._deadline_ns:
            self._count(self._assembler.finish(), found)
        return found

    def _receive(self, data: memoryview, now_ns: int) -> list[AccessUnit]:
        if is_rtcp(data):
            return []
        try:
            packet = parse_packet(data)
        except RtpError as error:
            self._refuse(str(error))
            return []
        if packet.payload_type != self._payload_type:
            others = self.counts.other_payload
            others[packet.payload_type] = others.get(packet.payload_type, 0) + 1
            return []
        if packet.ssrc == self.ssrc:
            self._successor = None
            return self._accept(packet, now_ns)
        if self.ssrc >= 0 and not self._succeeds(packet, now_ns):
            return []
        found = self._start_over()
        self.ssrc = packet.ssrc
        self.reception = PacketReception()
        if self._successor:
            found += self._accept(self._successor, now_ns)
            self._successor = None
        return found + self._accept(packet, now_ns)

    def _accept(self, packet: Packet, now_ns: int) -> list[AccessUnit]:
        """The access units that `packet` of the present sender completes."""
        found: list[AccessUnit] = []
        arrival = self.reception.count_packet(packet.sequence)
        if arrival is Arrival.STRAY:
            return found
        if arrival is Arrival.RESTART:
            found += self._start_over()
        self._heard_ns = now_ns
        if packet.timestamp != self._timestamp:
            self.reception.arrived(packet.timestamp, now_ns)
        # The payload is kept while it waits, and its memory is the caller's.
        newest = self.reception.extended
        number = newest - (newest - packet.sequence & 0xFFFF)
        if number != self._ordered.expected:
            packet = _owned(packet)
        elif not self._ordered.waiting:
            self._ordered.pass_over()
            self._unpack(packet, found, lost=False)
            return found
        for each, lost in self._ordered.put(number, packet, now_ns):
            self._unpack(each, found, lost=lost)
        return found

    def _succeeds(self, packet: Packet, now_ns: int) -> bool:
        """Whether `packet` comes from whom to listen to from now on, in place of the present sender."""
        silent_ns = now_ns - self._heard_ns
        if not self._alone:
            passes = self._probation.passes(packet, silent_ns)
            self.counts.strangers += not passes
            return passes
        # Some cameras take another SSRC at every key frame. One that was left and goes on is of another stream: servers
        # that send one over a connection that it does not belong to are in use.
        left, heard_ns = self._left
        if packet.ssrc == left and now_ns - heard_ns < TAKEOVER_NS and silent_ns < TAKEOVER_NS:
            self._left = left, now_ns
            return False
        first = self._successor
        if first is None or (packet.ssrc, packet.sequence) != (first.ssrc, first.sequence + 1 & 0xFFFF):
            self._successor = _owned(packet)  # perhaps a stray one
            return False
        self._left = self.ssrc, self._heard_ns
        return True

    def _start_over(self) -> list[AccessUnit]:
        """Give up what is arriving: another sender, or one that has begun anew, continues none of it."""
        found: list[AccessUnit] = []
        for packet, lost in self._ordered.flush():
            self._unpack(packet, found, lost=lost)
        self._drop_fragments()
        if self.ssrc >= 0:
            self._count(self._assembler.note_loss(None), found)
        self._timestamp = -1
        return found

    def _unpack(self, packet: Packet, found: list[AccessUnit], *, lost: bool) -> None:
        """Add the access units that `packet` completes to `found`."""
        if lost or (packet.timestamp != self._timestamp and self._fragments):
            self._drop_fragments()
            self._count(self._assembler.note_loss(packet.timestamp), found)
        self._timestamp = packet.timestamp
        try:
            parts = self._format.parts(packet.payload)
        except PayloadError as error:
            self._refuse(str(error))
            self._count(self._assembler.note_loss(packet.timestamp), found)
            return
        for part in parts:
            if (whole := self._whole(part)) is None:
                continue
            for nal in taken_apart(whole):
                self._count(self._assembler.add(nal, packet.timestamp), found)
        self._marked |= packet.marker
        if packet.marker and not self._assembler.split_pictures:
            self._drop_fragments()
            self._count(self._assembler.finish(), found)

    def _whole(self, part: NalPart) -> bytes | None:
        """The NAL unit that `part` completes; None: none."""
        if part.start:
            self._drop_fragments()
            if part.end:
                return part.data
        elif not self._fragments:  # its beginning was lost, or never sent
            self._assembler.note_fragment(self._timestamp, part.head)
            return None
        self._head = part.head
        self._fragments.append(part.data)
        self._held += len(part.data)
        if self._held > MAX_UNIT:
            self._drop_fragments()
        if not part.end or not self._fragments:
            return None
        nal = b"".join(self._fragments)
        self._fragments.clear()
        self._held = 0
        return nal

    def _drop_fragments(self) -> None:
        """Give up a NAL unit whose end will not come."""
        if self._fragments:
            self._fragments.clear()
            self._held = 0
            self._assembler.note_fragment(self._timestamp, self._head)

    def _refuse(self, problem: str) -> None:
        self.counts.malformed += 1
        self.counts.problem = problem

    def _count(self, unit: AccessUnit | None, found: list[AccessUnit]) -> None:
        if unit is None:
            return
        self.counts.pictures += 1
        if unit.damaged:
            self.counts.damaged += 1
            self.counts.problem = unit.damaged
        found.append(unit)


def _owned(packet: Packet) -> Packet:
    return Packet(packet.payload_type, packet.marker, packet.sequence, packet.timestamp, packet.ssrc,
                  memoryview(bytes(packet.payload)))  # fmt: skip
