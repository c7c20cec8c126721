"""Feed garbage and damaged messages to every parser that faces the network: it may raise only its own errors.

`make test` tries a few hundred inputs per parser; `make fuzz MINUTES=10` continues for that long with each, and prints
inputs that fail.
"""

import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime

import cv2
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from harness.fuzz import MINUTES, Target, fuzz, pieces
from harness.settings import sensor_settings

from embereye.detect.sensing.bands import BandTable
from embereye.process.http.pages import _answer
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.grpc.batches import analyse_batches
from embereye.sensor.grpc.ingest import _parse_sized
from embereye.sensor.tick import TickBatcher
from embereye.sim.cameras.video import encode_loop
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, ReportRequest
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, Reading, ReadingColumns, ThermalFrame
from embereye.v1.types_pb2 import Device
from embereye.wire import matroska, radiometric
from embereye.wire.device.reader import LineReader, read_together
from embereye.wire.http import authorization
from embereye.wire.http.multipart import MultipartParser, boundary_of
from embereye.wire.jpeg.header import Headers, JpegError
from embereye.wire.onvif import device as onvif_device
from embereye.wire.onvif import discovery, media, soap, xml
from embereye.wire.rtp.depacketize import Depacketizer
from embereye.wire.rtp.nal_payload import H264Format, H265Format, NalFormat
from embereye.wire.rtp.packet import RtpError, parse_packet, parse_rtcp
from embereye.wire.rtp.video_receiver import VideoReceiver
from embereye.wire.rtsp import messages as rtsp
from embereye.wire.video.h264 import H264
from embereye.wire.video.h265 import H265
from embereye.wire.video.nal import Codec, VideoError, nal_units

TODAY = datetime(2026, 1, 1, tzinfo=UTC)

JPEG = cv2.imencode(".jpg", np.full((16, 32, 3), 90, np.uint8))[1].tobytes()
MUXER = matroska.Muxer(32, 16, "gate", 1)
CLIP = MUXER.begin() + MUXER.frame(JPEG, 1) + MUXER.frame(JPEG, 100_000_001) + MUXER.finish()[0]


FORMATS: dict[str, NalFormat] = {"H264": H264Format(), "H265": H265Format()}
DRAWN = [cv2.imencode(".jpg", np.full((64, 96, 3), 40 * number, np.uint8))[1].tobytes() for number in range(3)]
NALS = {
    encoding: [
        part.data
        for picture in encode_loop(DRAWN, encoding, 15)
        for payload in picture.payloads
        for part in form.parts(memoryview(payload))
    ]
    for encoding, form in FORMATS.items()
}
# Small packets, so that pictures go in fragments.
PAYLOADS = {
    encoding: list(form.payloads([nal[:200] for nal in NALS[encoding]], 60)) for encoding, form in FORMATS.items()
}


def _lines(data: bytes, cuts: list[int]) -> None:
    ahead, plain = LineReader(), LineReader()
    for piece in pieces(data, cuts):
        ahead.receive(piece)
        ahead.parse_ahead()
        plain.receive(piece)
    assert ahead.pending <= len(data)
    read_together([ahead, plain])


def _batches(data: bytes, _: list[int]) -> None:
    request, _size = _parse_sized(data)
    if request is None:
        return
    table = BandTable()
    batcher = TickBatcher(table, lambda signs, now: None)
    batcher.configure(sensor_settings())
    device = SensorDevice(Device(id="s-01", zone="hall"), sensor_settings(), table)
    analyse_batches(device, request.devices, batcher, time.time_ns())
    ledger = device.arrivals.ledger
    assert ledger.waiting == 0, ledger


def _rtp(data: bytes, cuts: list[int]) -> None:
    receiver = Depacketizer()
    for number, packet in enumerate(pieces(data, cuts)):
        receiver.feed(memoryview(packet), number * 1_000_000)
    receiver.poll(10**12)


def _video(encoding: str) -> Callable[[bytes, list[int]], None]:
    """Payloads behind valid RTP headers, as a camera sends them, and the same bytes without headers."""

    def read(data: bytes, cuts: list[int]) -> None:
        behind_headers, bare = (VideoReceiver(encoding, 97, [], 10**9, 0) for _ in range(2))
        received = 0
        for number, piece in enumerate(pieces(data, cuts)):
            header = struct.pack("!BBHII", 0x80, 97 | 0x80 * (number % 3 == 2), number, 6000 * (number // 3), 1)
            for receiver, packet in ((behind_headers, header + piece), (bare, piece)):
                if not packet:
                    continue
                for unit in receiver.feed_joined(memoryview(packet), len(packet), number * 1_000_000):
                    received += len(unit.data)
                    assert unit.size[0] >= 0
        for receiver in (behind_headers, bare):
            receiver.poll(10**15)
        assert received <= 2 * (len(data) + 8 * len(data) + 64 * 4096)

    return read


def _parameter_sets(codec: Codec) -> Callable[[bytes, list[int]], None]:
    def read(data: bytes, _: list[int]) -> None:
        for nal in (data, *nal_units(data)):
            codec.is_intra(nal)
            unit = codec.inspect(nal)
            assert unit.size[0] >= 0

    return read


def _description(data: bytes, _: list[int]) -> None:
    tracks, _control = rtsp.read_description(data, "rtsp://camera/stream")
    for track in tracks:
        assert 0 <= track.payload_type < 128
        assert sum(map(len, track.parameter_sets)) <= len(data)


def _rtsp(data: bytes, cuts: list[int]) -> None:
    parser = rtsp.RtspParser()
    for piece in pieces(data, cuts):
        for item in parser.feed(piece):
            if isinstance(item, rtsp.Message):
                rtsp.read_transport(item.header("Transport"))
                rtsp.read_session(item.header("Session"))
                assert item.sequence is not None
                rtsp.read_description(item.body, "rtsp://camera/stream")


def _multipart(data: bytes, cuts: list[int]) -> None:
    parser = MultipartParser("multipart/x-mixed-replace; boundary=frame")
    for piece in pieces(data, cuts):
        parser.feed(piece)
    assert parser.buffered <= len(data)


def _onvif(data: bytes, _: list[int]) -> None:
    answer = xml.parse(data)
    for profile in media.read_profiles(answer):
        assert str(profile).isprintable()
        assert profile.side >= 0
    for read in (
        media.read_uri, soap.read_fault, lambda part: onvif_device.read_clock(part, TODAY), onvif_device.read_services,
        onvif_device.read_capabilities, onvif_device.read_information,
    ):  # fmt: skip
        read(answer)


def _discovery(data: bytes, _: list[int]) -> None:
    for match in discovery.read_matches(data, "1234"):
        assert match.addresses


def _authorization(data: bytes, _: list[int]) -> None:
    text = data.decode("latin-1")
    boundary_of(text)
    challenge = authorization.strongest([text])
    if challenge is not None:
        authorization.authorize(challenge, "GET", "/", "user", "secret", client_nonce="ab")


def _report(data: bytes, _: list[int]) -> None:
    ReportRequest.FromString(data)


TARGETS = {
    "device lines": Target(
        _lines,
        (
            b"#serialno:s-01!\r\n#Sensor:ADC1=280,ADC2=1305,ADC3=2,DIO=0!\r\n#Sensors-02:ADC1=3e9,ADC3:=-1!",
            b"#frame:" + b"FFB8" * 768 + b"!#EEPROM1:" + b"0123" * 832 + b"!#locid:hall!",
        ),
    ),
    "gRPC batches": Target(
        _batches,
        (
            IngestRequest(
                devices=[
                    DeviceBatch(device="s-01", epoch=1, readings=[Reading(sequence=n, smoke_adc=n) for n in range(5)]),
                    DeviceBatch(
                        device="s-01",
                        epoch=1,
                        frames=[ThermalFrame(sequence=9, words=b"\x12\x34" * 768)],
                        columns=ReadingColumns(first_sequence=10, time_ns=[1, 2, 3], smoke_adc=[1, 2, 3]),
                        calibration=b"\x01\x02" * 832,
                    ),
                ]
            ).SerializeToString(),
        ),
        (DecodeError,),
    ),
    "shards' reports": Target(
        _report,
        (ReportRequest(coverage=Coverage(devices=[DeviceStatus(id="a", reason="b")])).SerializeToString(),),
        (DecodeError,),
    ),
    "RTP and JPEG": Target(
        _rtp,
        (
            bytes.fromhex("809a000100000001000000010000000000fe0402") + b"\x12\x34" * 40,
            bytes.fromhex("809a00010000000100000001000000004180040200080ff00000004000") + bytes(range(64)) + JPEG[-40:],
        ),
    ),
    "RTP packets": Target(
        lambda data, _: parse_packet(memoryview(data)),
        (bytes.fromhex("b09a0001000000010000000100000000abac0001"),),
        (RtpError,),
    ),
    "RTCP": Target(
        lambda data, _: parse_rtcp(data, 1),
        (bytes.fromhex("80c80006000000010000000100000001000000010000000100000001"),),
    ),
    **{
        f"RTP and {encoding}": Target(
            _video(encoding),
            (
                b"".join(payloads),
                b"".join(
                    struct.pack("!BBHII", 0x80, 97, number, 0, 1) + payload for number, payload in enumerate(payloads)
                ),
            ),
        )
        for encoding, payloads in PAYLOADS.items()
    },
    **{
        f"{encoding}'s parameter sets": Target(_parameter_sets(codec), tuple(NALS[encoding]), (VideoError,))
        for encoding, codec in (("H264", H264()), ("H265", H265()))
    },
    "SDP": Target(
        _description,
        (
            b"v=0\r\na=control:*\r\nm=video 0 RTP/AVPF 97 26\r\na=rtpmap:97 H264/90000\r\na=rtcp-fb:97 nack pli\r\n"
            b"a=fmtp:97 packetization-mode=1;sprop-parameter-sets=Z0IAKeKQFge2AtwEBAaQeJEV,aM48gA==\r\n"
            b"a=framesize:97 640-480\r\na=control:track1\r\nm=audio 0 RTP/AVP 0\r\n",
            b"m=video 0 RTP/AVP 96\na=rtpmap:96 H265/90000\na=fmtp:96 sprop-vps=QAE=; sprop-sps=QgE=; sprop-pps=RAE=\n",
        ),
    ),
    "RTSP": Target(
        _rtsp,
        (
            b"RTSP/1.0 200 OK\r\nCSeq: 2\r\nSession: 12;timeout=60\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n"
            b"Content-Length: 60\r\n\r\nv=0\r\nm=video 0 RTP/AVP 26\r\na=control:track1\r\na=x-dimensions:64,48\r\n"
            b"$\x00\x00\x04abcd",
        ),
        (rtsp.RtspError,),
    ),
    "multipart": Target(
        _multipart,
        (
            b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n--frame\r\n\r\n"
            % (len(JPEG), JPEG),
        ),
    ),
    "ONVIF": Target(
        _onvif,
        (
            b"<Envelope><Body><Service><Namespace>http://www.onvif.org/ver10/media/wsdl</Namespace><XAddr>http://c/m</XAddr>"
            b'</Service><Media><XAddr>http://camera/media</XAddr></Media><Profiles token="p1"><Name>n</Name>'
            b"<VideoEncoderConfiguration><Encoding>H264</Encoding><Resolution><Width>640</Width><Height>360</Height>"
            b"</Resolution><RateControl><FrameRateLimit>15</FrameRateLimit></RateControl></VideoEncoderConfiguration>"
            b"</Profiles><Uri>http://c/s</Uri>"
            b"<UTCDateTime><Time><Hour>1</Hour><Minute>2</Minute><Second>3</Second></Time><Date><Year>2026</Year>"
            b"<Month>1</Month><Day>2</Day></Date></UTCDateTime><Fault><Code><Value>ter:NotAuthorized</Value></Code>"
            b"<Reason><Text>no</Text></Reason></Fault></Body></Envelope>",
        ),
        (xml.XmlError,),
    ),
    "WS-Discovery": Target(
        _discovery,
        (
            b"<Envelope><Header><RelatesTo>urn:uuid:1234</RelatesTo></Header><Body><ProbeMatches><ProbeMatch>"
            b"<EndpointReference><Address>urn:uuid:1</Address></EndpointReference><Scopes>onvif://www.onvif.org/name/a%20b"
            b"</Scopes><XAddrs>http://10.0.0.1/onvif http://[fe80::1]/onvif</XAddrs></ProbeMatch></ProbeMatches></Body>"
            b"</Envelope>",
        ),
    ),
    "HTTP headers": Target(
        _authorization,
        (b'Digest realm="a", nonce="b", qop="auth,auth-int", algorithm=SHA-256, Basic realm="x"; boundary=--f',),
    ),
    "HTTP pages": Target(
        lambda data, _: _answer({"/metrics": lambda: (200, "text/plain", b"")}, data),
        (b"GET /metrics HTTP/1.1\r\n\r\n",),
    ),
    "JPEG headers": Target(lambda data, _: Headers().read(data), (JPEG,), (JpegError,)),
    "radiometric TIFF": Target(
        lambda data, _: (radiometric.read_header(data), radiometric.read_words(data)),
        (radiometric.wrap(4, 3, b"\x12\x34" * 12),),
        (JpegError,),
    ),
    "Matroska": Target(lambda data, _: list(matroska.frames(data)), (CLIP,), (matroska.MatroskaError,)),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.timeout(180 + 120 * MINUTES)
def test_no_bytes_make_a_parser_raise_anything_but_its_own_error(target: Target) -> None:
    fuzz(target)
