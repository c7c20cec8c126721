"""Send frames that were coded beforehand at an even pace: the cheap sending side of the cameras' benchmarks.

Each system call sends many RTP packets (UDP_SEGMENT), and gRPC messages are written without a library. A sender as
expensive as a receiver would distort the measurement.
"""

import argparse
import asyncio
import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import uvloop

from embereye.levels import Level
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.process.tls.trust import trusting
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.scenes.films import Cameras, CameraSpec, looped_film
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import ReportRequest, ReportResponse
from embereye.v1.evidence_pb2_grpc import EvidenceServicer, add_EvidenceServicer_to_server
from embereye.v1.frames_pb2 import PushRequest
from embereye.wire.rtp.packetize import Packetizer, read_scan
from embereye_bench.films import Films, load
from embereye_bench.sensors.load import HOST
from embereye_bench.sensors.messages import Messages

BURNING_CAMERAS = ("camera-0", "camera-50")
SEND_BUFFER = 1024 * 1024  # bytes; a few frames
UDP_SEGMENT = 103  # linux/udp.h: the kernel cuts one buffer into packets of this size
SEGMENT, HEADER = struct.Struct("=H"), struct.Struct(">HII")
SEGMENTS = 40  # packets in a call; UDP accepts 64 KB at most
CLOCK = 90_000  # Hz, of RTP timestamps
LATE = 1.0  # seconds; a sender further behind does not catch up
WAKE_SECONDS = 0.002  # shortest time between checks of the schedule: waking up takes time from the measured process


class SendSchedule:
    """Schedules the cameras' frames, evenly spread, because independent cameras do not send at the same time."""

    def __init__(self, cameras: int, rate: float) -> None:
        self._cameras = cameras
        self._interval = 1.0 / max(1e-6, cameras * rate)
        self.began = 0.0  # perf_counter seconds; 0: not sending
        self.turn = 0

    def start(self) -> None:
        """Start or resume sending."""
        self.began = time.perf_counter() - self.turn * self._interval

    def due(self) -> Iterator[tuple[int, int]]:
        """Yield (camera, frame number) of every frame that is due now."""
        if not self.began:
            return
        now = time.perf_counter()
        self.began = max(self.began, now - LATE - self.turn * self._interval)
        last = int((now - self.began) / self._interval)
        while self.turn < last:
            number, camera = divmod(self.turn, self._cameras)
            self.turn += 1
            yield camera, number

    @property
    def rest(self) -> float:
        """Seconds until the next frame is due, after the start."""
        return self.began + (self.turn + 1) * self._interval - time.perf_counter()


class Numbers:
    """Answers every line on standard input with the numbers of frames sent and their cost."""

    def __init__(self, schedule: SendSchedule) -> None:
        self.schedule = schedule
        self._sending = asyncio.Event()
        self.sent = 0
        self.unsent = 0  # frames that could not be sent
        self.alarms = 0  # signs of fire reported for cameras that show none
        self.came: dict[str, tuple[float, float]] = {}  # of a device's first alarm: its sign and its arrival, seconds

    async def serve(self, introduction: dict[str, Any], sending: "asyncio.Task[None] | None" = None) -> None:
        """Answer until standard input is closed; raise the error of `sending` if it has failed."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        print(json.dumps(introduction), flush=True)
        while line := await reader.readline():
            if sending and sending.done():
                sending.result()
            if line == b"start\n":
                self.schedule.start()
                self._sending.set()
            elif line == b"stop\n":
                self.schedule.began = 0.0
                self._sending.clear()
            numbers = {"sent": self.sent, "unsent": self.unsent, "alarms": self.alarms,
                       "cpu": time.process_time()} | ({"came": self.came} if line == b"came\n" else {})  # fmt: skip
            print(json.dumps(numbers), flush=True)

    async def send(self, frame: Callable[[int, int], bool]) -> None:
        """Call `frame(camera, number)` for every frame that is due; it returns True if the frame was sent."""
        while await self._sending.wait():
            for camera, number in self.schedule.due():
                if frame(camera, number):
                    self.sent += 1
                else:
                    self.unsent += 1
            await asyncio.sleep(max(WAKE_SECONDS, self.schedule.rest))


def image_field(frame: bytes) -> bytes:
    """Serialise the image field of a PushRequest; protobuf messages can be joined by joining their bytes."""
    return PushRequest(image=frame).SerializeToString()


async def push(films: Films, numbers: Numbers, arguments: argparse.Namespace) -> None:
    """Push every camera's frames on a separate connection and stream."""
    images = replace(films, films=tuple(tuple(map(image_field, film)) for film in films.films))
    tls = None
    if arguments.ca:
        tls = trusting(arguments.ca)
        tls.set_alpn_protocols(["h2"])
    cameras = [Messages(arguments.target, "/embereye.v1.Frames/Push", tls) for _ in range(arguments.cameras)]

    def frame(camera: int, number: int) -> bool:
        head = PushRequest(camera=f"camera-{camera}", sequence=number + 1, time_ns=time.time_ns())
        return cameras[camera].offer(head.SerializeToString(), images.frame(camera, number))

    async with beside(numbers.send(frame), name="send") as sending:
        await numbers.serve({}, sending)
    for camera in cameras:
        camera.close()


async def mjpeg(films: Films, numbers: Numbers, arguments: argparse.Namespace) -> None:
    """Serve every camera as multipart/x-mixed-replace at /NUMBER."""
    clients: dict[int, socket.socket] = {}
    head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
    parts = replace(
        films, films=tuple(tuple(head % len(jpeg) + jpeg + b"\r\n" for jpeg in film) for film in films.films)
    )
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
    unsent: dict[int, memoryview] = {}

    async def accept(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            request = await loop.sock_recv(client, 4096)
            await loop.sock_sendall(client, answer)
            number = int(request.split(b" ")[1][1:])
            unsent.pop(number, None)
            clients[number] = client

    def frame(camera: int, number: int) -> bool:
        client = clients.get(camera)
        if client is None:
            return False
        rest = unsent.pop(camera, None)
        whole = memoryview(parts.frame(camera, number))
        for data in (whole,) if rest is None else (rest, whole):
            try:
                sent = client.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:  # the peer closed it, and will connect again
                clients.pop(camera).close()
                return False
            if sent < len(data):  # the next frame must wait until this one is sent
                unsent[camera] = data[sent:] if sent or data is rest else memoryview(b"")
                return data is whole and sent > 0
        return True

    with socket.create_server((HOST, 0), backlog=256) as listener:
        listener.setblocking(False)
        async with beside(accept(listener), name="accept"), beside(numbers.send(frame), name="send") as sending:
            await numbers.serve({"port": listener.getsockname()[1]}, sending)


def packets(frame: bytes) -> tuple[memoryview, int]:
    """The RTP packets of `frame` one behind the other, and the size of all but the last."""
    return Packetizer(0).joined_packets(read_scan(frame), 0)


class RtpCamera:
    """An RTP/JPEG sender: numbers packets that were made beforehand; the kernel cuts them apart."""

    def __init__(self, number: int, port: int) -> None:
        self._ssrc = number + 1
        self._sequence = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((HOST, port))

    def send(self, joined: memoryview, size: int, timestamp: int) -> bool:
        """Send one picture; False if the kernel did not accept all of it."""
        stamped = bytearray(joined)
        for offset in range(0, len(stamped), size):
            HEADER.pack_into(stamped, offset + 2, self._sequence, timestamp & 0xFFFF_FFFF, self._ssrc)
            self._sequence = (self._sequence + 1) & 0xFFFF
        segment = (socket.IPPROTO_UDP, UDP_SEGMENT, SEGMENT.pack(size))
        view = memoryview(stamped)
        try:
            for start in range(0, len(view), SEGMENTS * size):
                self._socket.sendmsg([view[start : start + SEGMENTS * size]], [segment])
        except OSError:  # no receiver yet
            return False
        return True


async def rtp(films: Films, numbers: Numbers, arguments: argparse.Namespace) -> None:
    """Send every camera's RTP/JPEG to a separate port."""
    made = {frame: packets(frame) for film in films.films for frame in film}
    cameras = [RtpCamera(number, port) for number, port in enumerate(arguments.ports)]

    def frame(camera: int, number: int) -> bool:
        return cameras[camera].send(*made[films.frame(camera, number)], int(number * CLOCK / arguments.rate))

    async with beside(numbers.send(frame), name="send") as sending:
        await numbers.serve({}, sending)


async def rtsp(films: Films, numbers: Numbers, arguments: argparse.Namespace) -> None:
    """Serve every camera by RTSP with the simulator, regardless of the start command."""
    specs = [CameraSpec(str(number)) for number in range(arguments.cameras)]
    cameras = Cameras(specs, started=time.monotonic())
    for number in range(arguments.cameras):
        loop = films.films[films.film_of(number)]
        cameras.films[str(number)] = looped_film(arguments.rate, partial(_place, loop, 7 * number, arguments.rate))
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def count() -> None:
        while True:
            numbers.sent = cameras.sent
            await asyncio.sleep(0.1)

    serving = serve_rtsp(cameras, HOST, 0, stop, port.set_result, arguments.codec, arguments.loss)
    async with beside(serving, name="serve"), beside(count(), name="count"):
        await numbers.serve({"port": await port})


def _place(loop: Sequence[bytes], first: int, rate: float, seconds: float) -> tuple[Sequence[bytes], int]:
    return loop, (first + int(seconds * rate)) % len(loop)


class Hub(EvidenceServicer):
    """Accepts evidence and coverage like the real hub. Camera 0 burns; signs from other cameras are false."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    async def Report(self, request_iterator: Any, context: object) -> Any:
        """Acknowledge evidence."""
        yield ReportResponse()
        async for request in request_iterator:
            assert isinstance(request, ReportRequest)
            if request.HasField("evidence"):
                evidence = request.evidence
                false = evidence.device not in BURNING_CAMERAS and Level(evidence.level) >= Level.PRE_ALARM
                self._numbers.alarms += false
                if evidence.level >= Level.ALARM.wire:
                    self._numbers.came.setdefault(evidence.device, (evidence.until_ns / SECOND, now_ns() / SECOND))
                yield ReportResponse(acknowledged=[request.evidence.id])


async def _main(arguments: argparse.Namespace) -> None:
    films = load(arguments.films)
    numbers = Numbers(SendSchedule(arguments.cameras, arguments.rate))
    hub = grpc.aio.server()
    add_EvidenceServicer_to_server(Hub(numbers), hub)
    hub.add_insecure_port(arguments.hub)
    await hub.start()
    await KINDS[arguments.kind](films, numbers, arguments)
    await hub.stop(0)


KINDS = {"push": push, "mjpeg": mjpeg, "rtp": rtp, "rtsp": rtsp}


def main() -> int:
    """Send until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--target", default="", help="host:port of the shard")
    parser.add_argument("--ca", type=Path, default=None, help="use TLS and trust this authority (push)")
    parser.add_argument("--ports", type=int, nargs="*", default=[], help="UDP port of each camera (rtp)")
    parser.add_argument("--hub", required=True, help="host:port to listen on as the hub")
    parser.add_argument("--films", type=Path, required=True)
    parser.add_argument("--cameras", type=int, default=100)
    parser.add_argument("--rate", type=float, default=15.0)
    parser.add_argument("--codec", default="H264", help="H264 or H265 (rtsp)")
    parser.add_argument("--loss", type=float, default=0.0, help="share of packets lost over UDP (rtsp)")
    uvloop.run(_main(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
