"""Simulate cameras that send RTP/JPEG to ports (RFC 2435).

Each system call sends many packets of a picture (UDP_SEGMENT): sending them one by one takes five times as long.
"""

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from embereye.process.files import system_errors
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks, first_of
from embereye.sim.cameras.video import CodedFilms
from embereye.sim.scenes.films import Cameras
from embereye.wire.jpeg.header import JpegError
from embereye.wire.rtp.packet import VIDEO_HZ
from embereye.wire.rtp.packetize import Packetizer, read_scan

REPORT_SECONDS = 5.0  # between two sender reports
NTP_EPOCH = 2_208_988_800  # seconds from 1900 to 1970
VIDEO_PAYLOAD = 96  # RTP payload type of H.264 and H.265
UDP_SEGMENT = 103  # linux/udp.h: the kernel cuts one buffer into packets of this size
SEGMENT = struct.Struct("=H")
SEGMENTS = 40  # packets in a call; UDP accepts 64 KB at most
SEND_BUFFER = 1024 * 1024  # bytes; a few pictures
_Resolved = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]  # from getaddrinfo
PORT_STEP = 2  # odd ports are for reports


async def send_rtp(cameras: Cameras, host: str, port: int, stop: asyncio.Event) -> None:
    """Send cameras to `host` until `stop`: the first to `port`, the next to the even port after it, and so on.

    UserError if `host` is unreachable.
    """
    ports = range(port, port + PORT_STEP * len(cameras.specs), PORT_STEP)
    with contextlib.ExitStack() as stack:
        with system_errors(f"cannot send to {host}"):
            resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            pairs = [
                [stack.enter_context(_connected(resolved[0], number)) for number in (even, even + 1)] for even in ports
            ]
        async with Tasks() as tasks:
            for spec, (packets, reports) in zip(cameras.specs, pairs, strict=True):
                tasks.start(_send_by(cameras, spec.id, packets, reports), name=f"rtp-{spec.id}")
            await first_of(stop.wait(), tasks.failed.wait())


def _connected(resolved: _Resolved, port: int) -> socket.socket:
    family, kind, protocol, _, address = resolved
    sender = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    try:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        sender.connect((address[0], port, *address[2:]))
    except OSError:
        sender.close()
        raise
    return sender


async def _send_by(cameras: Cameras, camera: str, packets: socket.socket, reports: socket.socket) -> None:
    def send_picture(joined: memoryview, size: int) -> None:
        try:
            send_joined(packets, joined, size)
        except OSError:  # no receiver, or a full buffer: packets are lost
            cameras.unsent += 1

    def send_report(data: bytes) -> None:
        with contextlib.suppress(OSError):
            reports.send(data)

    await stream_pictures(cameras, camera, send_picture, send_report)


def send_joined(sender: socket.socket, packets: memoryview, size: int) -> None:
    """Send `packets` of `size` bytes each (the last may be shorter) through the connected UDP socket `sender`.

    OSError if not all packets were sent.
    """
    segment = (socket.IPPROTO_UDP, UDP_SEGMENT, SEGMENT.pack(size))
    for start in range(0, len(packets), SEGMENTS * size):
        sender.sendmsg([packets[start : start + SEGMENTS * size]], [segment])


async def stream_pictures(
    cameras: Cameras, camera: str, send_picture: Callable[[memoryview, int], None],
    send_report: Callable[[bytes], None],
) -> None:  # fmt: skip
    """Send a camera's pictures by `send_picture`, and reports of its clock by `send_report`, until cancelled.

    `send_picture` receives a picture's packets, joined, and the bytes of each.
    """
    chance = random.SystemRandom()
    sender = Packetizer(chance.getrandbits(32), chance.getrandbits(16))
    base, began, reported = chance.getrandbits(32), time.time(), 0.0
    async for frame in cameras.frames(camera):
        now = time.time()
        timestamp = base + int((now - began) * VIDEO_HZ)
        send_picture(*sender.joined_packets(read_scan(frame), timestamp))
        if now - reported >= REPORT_SECONDS:
            reported = now
            send_report(sender.report(int((now + NTP_EPOCH) * (1 << 32)), timestamp))


async def stream_video(
    films: CodedFilms, camera: str, encoding: str, send_packet: Callable[[bytes], None],
    send_report: Callable[[bytes], None], key_wanted: asyncio.Event,
) -> None:  # fmt: skip
    """Send a camera's pictures as `encoding` by `send_packet`, and clock reports by `send_report`, until cancelled."""
    chance = random.SystemRandom()
    sender = Packetizer(chance.getrandbits(32), chance.getrandbits(16), payload_type=VIDEO_PAYLOAD)
    base, began, reported = chance.getrandbits(32), time.time(), 0.0
    async for picture in films.pictures(camera, encoding, key_wanted):
        now = time.time()
        timestamp = base + int((now - began) * VIDEO_HZ)
        for data in sender.pack(picture.payloads, timestamp):
            send_packet(data)
        if now - reported >= REPORT_SECONDS:
            reported = now
            send_report(sender.report(int((now + NTP_EPOCH) * (1 << 32)), timestamp))


def check_carried(cameras: Cameras) -> None:
    """Raise a UserError if RTP/JPEG cannot carry a camera's frames."""
    for camera, film in cameras.films.items():
        try:
            read_scan(film.frame(0.0))
        except JpegError as error:
            raise UserError(f"camera {camera} cannot be sent by RTP: {error}") from error
