"""The common part of receivers of pictures by RTP: which packets and senders count, and what is counted."""

from dataclasses import dataclass, field

from embereye.wire.rtp.packet import Packet, PacketReception, RtpError, is_rtcp, parse_packet

DEADLINE_NS = 100_000_000  # nanoseconds without a packet of a picture, after which its gaps are losses
TAKEOVER_NS = 500_000_000  # nanoseconds of silence, after which another sender may replace this one
PROBATION = 2  # packets in order before a sender is accepted (RFC 3550, A.1)


@dataclass
class Counts:
    """The numbers of packets and pictures since the start."""

    malformed: int = 0  # packets and NAL units
    other_payload: dict[int, int] = field(default_factory=dict)  # packets by unexpected payload type
    duplicates: int = 0  # packets, of JPEG
    stale: int = 0  # packets of a JPEG that is already completed
    strangers: int = 0  # packets from another sender than the accepted one
    pictures: int = 0
    damaged: int = 0  # JPEGs completed with parts lost
    unusable: int = 0  # pictures with too much lost; of a video, all that are damaged
    problem: str = ""  # cause of the latest malformed packet or unusable picture


class Probation:
    """Decides when another sender may replace the present one (RFC 3550, A.1)."""

    def __init__(self) -> None:
        self._candidate = (-1, -1, 0)  # SSRC, next sequence number, packets in order

    def admit(self, packet: Packet, silent_ns: int) -> bool:
        """Count a packet of another sender. True if it replaces the present one, which was silent for `silent_ns`."""
        ssrc, following, count = self._candidate
        in_order = (ssrc, following) == (packet.ssrc, packet.sequence)
        count = count + 1 if in_order else 1
        self._candidate = (packet.ssrc, (packet.sequence + 1) & 0xFFFF, count)
        return count >= PROBATION and silent_ns >= TAKEOVER_NS


class PictureReceiver:
    """Receives one sender's packets. The gaps of a picture are losses after `deadline_ns` without a packet of it."""

    def __init__(self, payload_type: int, deadline_ns: int) -> None:
        self.counts = Counts()
        self.reception = PacketReception()
        self.ssrc = -1
        self._payload_type = payload_type
        self._plain = 0x8000 | payload_type  # first word of a packet without marker, extension and padding
        self._deadline_ns = deadline_ns
        self._probation = Probation()
        self._heard_ns = 0

    def _parse(self, data: memoryview) -> Packet | None:
        """Return the packet of this payload type in `data`; None if there is none, which is counted."""
        if is_rtcp(data):
            return None
        try:
            packet = parse_packet(data)
        except RtpError as error:
            self._refuse(str(error))
            return None
        if packet.payload_type != self._payload_type:
            others = self.counts.other_payload
            others[packet.payload_type] = others.get(packet.payload_type, 0) + 1
            return None
        return packet

    def _refuse(self, problem: str) -> None:
        self.counts.malformed += 1
        self.counts.problem = problem
