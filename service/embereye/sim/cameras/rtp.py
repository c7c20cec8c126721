"""Simulated cameras that send RTP/JPEG to ports (RFC 2435).

The packets of a picture leave many a call (UDP_SEGMENT): to send each by itself takes five times as long.
"""

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable

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
UDP_SEGMENT = 103  # linux/udp.h: one buffer is sent as packets of one size
SEGMENT = struct.Struct("=H")
SEGMENTS = 40  # packets a call: UDP takes 64 KB at most
SEND_BUFFER = 1024 * 1024  # bytes; a few pictures
PORT_STEP = 2  # the odd ports are for reports


async def send_rtp(cameras: Cameras, host: str, port: int, stop: asyncio.Event) -> None:
    """Send every camera to `host`: the first to `port`, the next one to the even port after it, and so on."""
    async with Tasks() as tasks:
        for number, spec in enumerate(cameras.specs):
            tasks.start(_send_to(cameras, spec.id, host, port + PORT_STEP * number), name=f"rtp-{spec.id}")
        await first_of(stop.wait(), tasks.failed.wait())


async def _send_to(cameras: Cameras, camera: str, host: str, port: int) -> None:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol) as packets, \
            socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol) as reports:  # fmt: skip
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        packets.connect(address)
        reports.connect((address[0], port + 1, *address[2:]))

        def send_picture(joined: memoryview, size: int) -> None:
            try:
                send_joined(packets, joined, size)
            except OSError:  # nobody listens, or the buffer is full: packets are lost
                cameras.unsent += 1

        def send_report(data: bytes) -> None:
            with contextlib.suppress(OSError):
                reports.send(data)

        await stream_pictures(cameras, camera, send_picture, send_report)


def send_joined(own: socket.socket, packets: memoryview, size: int) -> None:
    """Send `packets` of `size` bytes, the last one maybe shorter, by the UDP socket `own`, which is connected.

    OSError where not all went out.
    """
    segment = (socket.IPPROTO_UDP, UDP_SEGMENT, SEGMENT.pack(size))
    for start in range(0, len(packets), SEGMENTS * size):
        own.sendmsg([packets[start : start + SEGMENTS * size]], [segment])


async def stream_pictures(
    cameras: Cameras, camera: str, send_picture: Callable[[memoryview, int], None],
    send_report: Callable[[bytes], None],
) -> None:  # fmt: skip
    """Send the packets of each of a camera's pictures by `send_picture`, and its clock by `send_report`.

    Until cancelled. `send_picture` gets them joined, and the bytes of each.
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
    """Send a camera's pictures as `encoding` by `send_packet`, and its clock by `send_report`, until cancelled."""
    chance = random.SystemRandom()
    sender = Packetizer(chance.getrandbits(32), chance.getrandbits(16), payload_type=VIDEO_PAYLOAD)
    base, began, reported = chance.getrandbits(32), time.time(), 0.0
    async for picture in films.pictures(camera, encoding, key_wanted):
        now = time.time()
        timestamp = base + int((now - began) * VIDEO_HZ)
        for data in sender.packed(picture.payloads, timestamp):
            send_packet(data)
        if now - reported >= REPORT_SECONDS:
            reported = now
            send_report(sender.report(int((now + NTP_EPOCH) * (1 << 32)), timestamp))


def check_carried(cameras: Cameras) -> None:
    """UserError if RTP/JPEG cannot carry what a camera shows."""
    for camera, film in cameras.films.items():
        try:
            read_scan(film.frame(0.0))
        except JpegError as error:
            raise UserError(f"camera {camera} cannot be sent by RTP: {error}") from error
