"""Packets over the RTSP connection give the same pictures however reads cut them."""

import itertools
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtsp.connection import Endpoint
from embereye.camera.sources.rtsp.session import Patience, RtspSession
from embereye.wire.rtp.nal_payload import H264Format, H265Format, NalFormat
from embereye.wire.rtsp.messages import Track, interleaved

from ....wire.video.coded import coded

FORMATS: dict[str, NalFormat] = {"H264": H264Format(), "H265": H265Format()}
REPORT = struct.pack(">BBHIQIII", 0x80, 200, 6, 7, 1 << 60, 90_000, 1, 1)
ANSWER = b"RTSP/1.0 200 OK\r\nCSeq: 9\r\n\r\n"


def sent(encoding, limit):
    """The data of a camera: packets of pictures on channel 0, and after each picture a report and an answer."""
    number, sending = itertools.count(65_500), []
    for timestamp, nals in coded(encoding, 16):
        payloads = list(FORMATS[encoding].payloads(nals, limit))
        for payload in payloads:
            lead = 0x8000 | (payload is payloads[-1]) << 7 | 97
            header = struct.pack(">HHII", lead, next(number) & 0xFFFF, timestamp, 7)
            sending.append(interleaved(0, header + payload))
        sending += [interleaved(1, REPORT), ANSWER]
    return sending


def offered(encoding, reads):
    pictures, states = [], []
    session = RtspSession(
        Endpoint("rtsp://127.0.0.1/"), lambda unit, *_: pictures.append(unit), states.append, SocketPoller(), Patience()
    )
    session._channels = (0, 1)
    session._stream = session._stream_of(Track("video", 97, encoding, ""), udp=False)
    for data in reads:
        session._connection.data_received(memoryview(data))
    return pictures, vars(session._stream.receiver.counts), session._heard_report[0], session._connection.failure


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_reads_cut_anywhere_give_the_pictures_of_single_packets(data):
    encoding = data.draw(st.sampled_from(["H264", "H265"]))
    sending = sent(encoding, data.draw(st.sampled_from([60, 300, 1400])))
    lost = data.draw(st.sets(st.integers(0, len(sending) - 1), max_size=3))
    sending = [each for number, each in enumerate(sending) if number not in lost]
    stream = b"".join(sending)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reads = [stream[start:end] for start, end in itertools.pairwise([0, *cuts, len(stream)])]
    assert offered(encoding, reads) == offered(encoding, sending)
    assert lost or len(offered(encoding, reads)[0]) == 16
