import asyncio
import socket
import time

import pytest
from harness.eventually import eventually

from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.datagrams import READS, DatagramReader, open_port
from embereye.camera.sources.source import BURST_SECONDS

DATAGRAMS = 20


class Slow:
    """A receiver that takes longer per packet than a read may."""

    has_pending = False

    def __init__(self):
        self.sizes = []

    def receive_packets(self, packets, size, now_ns):
        until = time.thread_time() + 2 * BURST_SECONDS
        while time.thread_time() < until:
            pass
        self.sizes.append(len(packets))
        return False

    def expire_pictures(self):
        pass


@pytest.fixture
def receiver():
    return open_port("127.0.0.1", 0)


@pytest.mark.parametrize("roomy", [True, False])
async def test_slow_packets_leave_event_loop_time_for_others(receiver, monkeypatch, roomy):
    monkeypatch.setattr("embereye.camera.sources.rtp.datagrams.ROOMY_BUFFER", 0 if roomy else 1 << 40)
    slow, poller, turns = Slow(), SocketPoller(), []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for size in range(1, DATAGRAMS + 1):  # packets of one size would be joined by the kernel
            sender.sendto(bytes(size), receiver.getsockname())
    assert DATAGRAMS < READS
    with DatagramReader(receiver, slow, poller):
        while len(slow.sizes) < DATAGRAMS:
            count = len(slow.sizes)
            await eventually(lambda count=count: len(slow.sizes) > count)
            turns.append(len(slow.sizes) - count)
    assert slow.sizes == list(range(1, DATAGRAMS + 1))
    assert max(turns) <= 2


async def test_a_reader_can_be_exited_while_it_pauses(receiver):
    slow, poller = Slow(), SocketPoller()
    with DatagramReader(receiver, slow, poller), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", receiver.getsockname())
        await eventually(lambda: slow.sizes)
    assert receiver.fileno() < 0
    await asyncio.sleep(10 * BURST_SECONDS)  # longer than the pause
    other = open_port("127.0.0.1", 0)
    with DatagramReader(other, slow, poller), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"yy", other.getsockname())
        await eventually(lambda: slow.sizes == [1, 2])
