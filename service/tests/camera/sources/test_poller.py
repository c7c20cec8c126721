import asyncio
import contextlib
import socket

import pytest
from harness.eventually import eventually

from embereye.camera.sources.poller import PATIENT_SECONDS, POLL_SECONDS, SocketPoller

PARTS = 3  # datagrams per picture


class Camera:
    """A socket with pictures of PARTS datagrams; records the number per read."""

    def __init__(self, intake, *, patient=False):
        self.sender, self.receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.receiver.setblocking(False)
        self.intake = intake
        self.reads = []
        intake.add(self.receiver.fileno(), self.read, patient=patient)

    def read(self):
        count = 0
        with contextlib.suppress(BlockingIOError):
            while self.receiver.recv(10):
                count += 1
        self.reads.append(count)
        return sum(self.reads) % PARTS > 0

    async def heard(self, count):
        await eventually(lambda: sum(self.reads) >= count, 5)

    def close(self):
        self.intake.remove(self.receiver.fileno())
        self.sender.close()
        self.receiver.close()


@pytest.fixture
async def camera():
    camera = Camera(SocketPoller())
    yield camera
    camera.close()


async def test_the_rest_of_a_picture_is_read_together(camera, monkeypatch):
    monkeypatch.setattr("embereye.camera.sources.poller.POLL_SECONDS", 0.1)  # a busy machine may pause here for long
    for picture in range(3):
        await asyncio.sleep(0.03)  # alone
        camera.sender.send(b"first")
        await camera.heard(PARTS * picture + 1)
        for part in range(1, PARTS):
            camera.sender.send(b"rest")
            if part < PARTS - 1:
                for _ in range(20):  # time enough for a read, without the pending rest
                    await asyncio.sleep(0)
        await camera.heard(PARTS * (picture + 1))
    assert camera.reads == [1, PARTS - 1] * 3


async def test_a_picture_that_arrives_whole_and_alone_is_read_at_once(camera):
    for picture in range(3):
        await asyncio.sleep(0.03)
        for _ in range(PARTS):
            camera.sender.send(b"part")
        await camera.heard(PARTS * (picture + 1))
    await asyncio.sleep(0.02)
    assert camera.reads == [PARTS] * 3


async def test_a_camera_removed_during_a_poll_does_not_affect_others():
    intake = SocketPoller()
    first, second = Camera(intake), Camera(intake)
    read = first.read

    def last():
        read()
        intake.remove(first.receiver.fileno())
        intake.remove(second.receiver.fileno())
        intake.add(second.receiver.fileno(), second.read)
        return True

    intake._readers[first.receiver.fileno()] = last
    first.sender.send(b"part")
    await first.heard(1)
    second.sender.send(b"part")
    await second.heard(1)
    second.close()


async def test_a_callback_follows_once_all_sockets_are_read():
    reads = []
    intake = SocketPoller(lambda: reads.append([sum(camera.reads) for camera in cameras]))
    cameras = [Camera(intake), Camera(intake)]
    for camera in cameras:
        camera.sender.send(b"part")
    await cameras[1].heard(1)
    await asyncio.sleep(0)
    assert reads[-1] == [1, 1]
    for camera in cameras:
        camera.close()


async def test_only_if_all_sockets_are_patient_are_they_read_half_as_often():
    intake = SocketPoller()
    patient, other = Camera(intake, patient=True), Camera(intake)
    assert intake._period == POLL_SECONDS
    other.close()
    assert intake._period == PATIENT_SECONDS
    Camera(intake).close()
    assert intake._period == PATIENT_SECONDS
    patient.close()
