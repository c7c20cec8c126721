import asyncio
import contextlib
import socket
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp import source as rtp
from embereye.camera.sources.rtp.datagrams import granted_buffer, open_port
from embereye.camera.sources.rtp.source import RtpSource
from embereye.camera.sources.source import keep_playing
from embereye.process.addresses import free_port
from embereye.process.timing.backoff import Backoff
from embereye.wire.jpeg.header import read_header
from embereye.wire.rtp.packetize import Packetizer, read_scan

from ...conftest import noisy_jpeg

UDP_SEGMENT = 103


def pixels(jpeg):
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR).tobytes()


@contextlib.asynccontextmanager
async def listening(query="", address="", port=None):
    """Run a listening source; yield a sending socket, the offered frames and the states."""
    port = port or free_port(socket.SOCK_DGRAM)
    frames, states = [], []
    source = RtpSource(parse_source(f"rtp://{address}:{port}{query}"), SocketPoller())
    player = asyncio.ensure_future(
        keep_playing("c", source, lambda *frame: frames.append(frame), states.append, Backoff(0.01, 0.02))
    )
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("127.0.0.1", port))
    try:
        await eventually(lambda: any(state.startswith(("waiting", "failed")) for state in states))
        yield sender, frames, states
    finally:
        sender.close()
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
async def test_pictures_sent_to_the_port_arrive(address):
    jpegs = [noisy_jpeg(seed) for seed in range(5)]
    async with listening(address=address) as (sender, frames, states):
        packetizer = Packetizer(9)
        for number, jpeg in enumerate(jpegs):
            for packet in packetizer.packetize(read_scan(jpeg), 6000 * number):
                sender.send(packet)
        await eventually(lambda: len(frames) == 5)
    assert [pixels(data) for data, _, _ in frames] == [pixels(jpeg) for jpeg in jpegs]
    assert all(0 < time.time_ns() - time_ns < 60e9 for _, time_ns, _ in frames)
    assert "streaming" in states


async def test_packets_joined_by_the_kernel_are_separated():
    jpegs = [noisy_jpeg(seed, (480, 640)) for seed in range(3)]
    async with listening() as (sender, frames, _):
        packetizer = Packetizer(9)
        for number, jpeg in enumerate(jpegs):
            packets = packetizer.packetize(read_scan(jpeg), 6000 * number)
            for start in range(0, len(packets), 40):
                size = len(packets[start]).to_bytes(2, "little")
                sender.sendmsg([b"".join(packets[start : start + 40])], [(socket.IPPROTO_UDP, UDP_SEGMENT, size)])
        await eventually(lambda: len(frames) == 3)
    assert [pixels(data) for data, _, _ in frames] == [pixels(jpeg) for jpeg in jpegs]


async def test_a_picture_with_missing_packets_is_offered_with_losses_or_truncated():
    whole = cv2.imencode(".jpg", np.random.default_rng(1).integers(90, 160, (240, 320, 3), dtype=np.uint8),
                         [cv2.IMWRITE_JPEG_RST_INTERVAL, 20])[1].tobytes()  # fmt: skip
    async with listening() as (sender, frames, _):
        packetizer = Packetizer(9)
        for number, jpeg in enumerate((whole, noisy_jpeg(1, (240, 320)))):
            for place, packet in enumerate(packetizer.packetize(read_scan(jpeg), 6000 * number)):
                if place != 3:
                    sender.send(packet)
            await eventually(lambda number=number: len(frames) == number + 1)
    (data, _, lost), (broken, _, _) = frames
    assert read_header(data).complete
    assert lost
    assert not read_header(broken).complete


async def test_a_port_in_use_is_reported_and_opened_once_it_is_free():
    port = free_port(socket.SOCK_DGRAM)
    other = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    other.bind(("::", port))
    async with listening(port=port) as (sender, frames, states):
        assert any(f"failed: port {port}: in use" in state for state in states)
        other.close()
        await eventually(lambda: f"waiting for packets on port {port}" in states)
        for packet in Packetizer(9).packetize(read_scan(noisy_jpeg()), 1):
            sender.send(packet)
        await eventually(lambda: frames)


@pytest.mark.parametrize(
    ("packets", "text"),
    [
        (Packetizer(9, payload_type=96).packetize(read_scan(noisy_jpeg()), 1), "payload type 96 (H.264 or another"),
        (Packetizer(9, payload_type=33).packetize(read_scan(noisy_jpeg()), 1), "payload type 33 (MPEG transport"),
        ([b"\x47" + bytes(187)], "no picture: RTP version 1, not 2"),
    ],
)
async def test_packets_that_are_no_jpeg_are_named_in_the_state(packets, text, monkeypatch):
    monkeypatch.setattr("embereye.camera.sources.rtp.stream.REPORT_SECONDS", 0.05)
    async with listening() as (sender, frames, states):
        for packet in packets:
            sender.send(packet)
        await eventually(lambda: any(text in state for state in states))
    assert not frames


async def test_silence_losses_and_a_second_sender_are_reported(monkeypatch):
    monkeypatch.setattr("embereye.camera.sources.rtp.stream.REPORT_SECONDS", 0.05)
    monkeypatch.setattr("embereye.camera.sources.rtp.stream.SILENT_SECONDS", 0.5)
    scan = read_scan(noisy_jpeg(1, (240, 320)))
    async with listening() as (sender, _, states):
        packetizer, number = Packetizer(9), 0

        async def until(text, *, lose=False, other=None):
            nonlocal number
            while not any(text in state for state in states):
                number += 1
                for place, packet in enumerate(packetizer.packetize(scan, 6000 * number)):
                    if not (lose and place == 3):
                        sender.send(packet)
                if other:
                    sender.send(other.packetize(scan, 6000 * number)[0])
                await asyncio.sleep(0.01)

        await until("% of packets lost", lose=True)
        await until("another sender's packets", other=Packetizer(10))
        await eventually(lambda: any(state.startswith("no packets on port") for state in states))


def test_a_group_is_joined_on_the_named_interface():
    port = free_port(socket.SOCK_DGRAM)
    with open_port("239.255.71.9", port, "127.0.0.1") as receiver, open_port("239.255.71.9", port, "127.0.0.1"):
        assert "0947FFEF" in Path("/proc/net/igmp").read_text()
        assert granted_buffer(receiver) > 100_000


async def test_pictures_sent_to_a_group_reach_only_its_members():
    jpegs, port, group = (
        [noisy_jpeg(seed, (240, 320)) for seed in range(3)],
        free_port(socket.SOCK_DGRAM),
        "239.255.71.10",
    )
    interface = "?interface=127.0.0.1"
    async with (
        listening(interface, group, port) as (_, first, _),
        listening(interface, group, port) as (_, other, _),
        listening(interface, "239.255.71.11", port) as (_, stranger, _),
    ):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            sender.connect((group, port))
            packetizer = Packetizer(9)
            for number, jpeg in enumerate(jpegs):
                for packet in packetizer.packetize(read_scan(jpeg), 6000 * number):
                    sender.send(packet)
            await eventually(lambda: len(first) == len(other) == len(jpegs))
    assert [pixels(data) for data, _, _ in first] == [pixels(jpeg) for jpeg in jpegs]
    assert [pixels(data) for data, _, _ in other] == [pixels(jpeg) for jpeg in jpegs]
    assert not stranger


async def test_a_silent_group_is_joined_again(monkeypatch):
    monkeypatch.setattr(rtp, "REJOIN_SECONDS", 0.2, raising=False)
    opened, group, port = [], "239.255.71.12", free_port(socket.SOCK_DGRAM)
    monkeypatch.setattr(rtp, "open_port", lambda *where: opened.append(open_port(*where)) or opened[-1])
    async with listening("?interface=127.0.0.1", group, port) as (_, frames, states):
        # The kernel does this when a network adapter is removed.
        membership = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
        opened[0].setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, membership)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            sender.connect((group, port))
            packets = list(Packetizer(9).packetize(read_scan(noisy_jpeg()), 6000))
            await eventually(lambda: frames or not [sender.send(packet) for packet in packets], 10)
    assert states == ["connecting", f"waiting for packets on port {port}", "streaming"]


async def test_an_error_with_one_cameras_pictures_does_not_affect_another():
    async def listen(offer):
        port = free_port(socket.SOCK_DGRAM)
        player = asyncio.ensure_future(RtpSource(parse_source(f"rtp://127.0.0.1:{port}"), intake).play(offer, print))
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.connect(("127.0.0.1", port))
        await asyncio.sleep(0)
        return player, sender, Packetizer(9)

    def explode(*_):
        raise ZeroDivisionError

    intake, frames = SocketPoller(), []
    cameras = [await listen(explode), await listen(lambda *frame: frames.append(frame))]
    for number in range(3):
        for _, sender, packetizer in cameras:
            for packet in packetizer.packetize(read_scan(noisy_jpeg()), number):
                sender.send(packet)
        await eventually(lambda number=number: len(frames) == number + 1)
    for player, sender, _ in cameras:
        sender.close()
        player.cancel()
    await asyncio.gather(*(player for player, *_ in cameras), return_exceptions=True)


def test_an_address_of_another_machine_is_reported():
    with pytest.raises(SourceError, match=r"192\.0\.2\.1 port"):
        open_port("192.0.2.1", free_port(socket.SOCK_DGRAM))


async def test_garbage_flooding_a_port_costs_no_other_camera_a_picture():
    jpegs = [noisy_jpeg(seed) for seed in range(40)]
    async with listening() as (sender, frames, _), listening() as (flooder, none, _):
        packetizer = Packetizer(9)
        for number, jpeg in enumerate(jpegs):
            for packet in packetizer.packetize(read_scan(jpeg), 6000 * number):
                sender.send(packet)
            for size in range(200):
                flooder.send(b"\x80\x1a" + bytes(size))
            await asyncio.sleep(0)
        await eventually(lambda: len(frames) == len(jpegs))
    assert not none
    assert all(read_header(data).complete for data, _, _ in frames)


async def test_joined_and_single_datagrams_of_all_sizes_are_read_correctly():
    jpegs = [noisy_jpeg(seed, (480, 640)) for seed in range(3)]
    async with listening() as (sender, frames, _):
        packetizer = Packetizer(9)
        for number, jpeg in enumerate(jpegs):
            # The loop does not run meanwhile, so a train of single and joined packets of many sizes waits.
            packets = packetizer.packetize(read_scan(jpeg), 6000 * number)
            joined = len(packets[0]).to_bytes(2, "little")
            for start in range(0, len(packets), 9):
                sender.sendmsg([b"".join(packets[start : start + 5])], [(socket.IPPROTO_UDP, UDP_SEGMENT, joined)])
                for packet in packets[start + 5 : start + 9]:
                    sender.send(b"no packet")
                    sender.send(b"")
                    sender.send(packet)
                    sender.send(bytes(60_000))
            await eventually(lambda number=number: len(frames) == number + 1)
    assert [pixels(data) for data, _, _ in frames] == [pixels(jpeg) for jpeg in jpegs]


async def test_after_a_blocked_event_loop_waiting_packets_are_read_correctly():
    packetizer, scan = Packetizer(9), read_scan(noisy_jpeg(1, (240, 320)))
    async with listening() as (sender, frames, _):
        # On a busy machine the sleep may end after the time that a picture has. Then the next one shows it.
        for number in range(1, 30):
            first, *others = packetizer.packetize(scan, 90_000 * number)
            sender.send(first)
            await asyncio.sleep(0.03)
            for packet in others:
                sender.send(packet)
            time.sleep(0.3)  # noqa: ASYNC251 - blocking is the subject of this test
            await asyncio.sleep(0.2)
            if any(read_header(frame).complete for frame, *_ in frames):
                return
    raise AssertionError("no picture survived a blocked event loop")
