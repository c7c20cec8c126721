"""Cameras of this machine. There is none where tests run, and no kernel module that plays one.

In their place stand other inputs of libavdevice and libavformat, read by the same code; V4L2's own part is what it says
of files that are none.
"""

import errno
import os
from itertools import islice

import av
import cv2
import numpy as np
import pytest

from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.open import open_source
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.video import device
from embereye.camera.sources.video.device import DeviceError
from embereye.camera.sources.video.source import DeviceSource

from ..conftest import noisy_jpeg


@pytest.mark.parametrize("declared", ["/dev/video0", "file:///dev/video12"])
def test_a_camera_of_this_machine_goes_by_its_path(declared):
    assert parse_source(declared).kind == "device"
    assert isinstance(open_source(declared, DialLimiter(1), SocketPoller()), DeviceSource)
    assert parse_source("/dev/video0.mp4").kind == "file"


def played(path):
    return DeviceSource(str(path), DialLimiter(1).starts).play(lambda *_: None, lambda _: None)


async def test_one_that_is_not_there_or_may_not_be_opened_is_told_with_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(SourceError, match="Plug in the camera, and run the shard on its machine"):
        await played("/dev/video999")
    (tmp_path / "video0").write_bytes(b"")
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root, which may do everything
    with pytest.raises(SourceError, match="Add the user to the group video"):
        await played(tmp_path / "video0")


def test_what_is_no_device_is_told(tmp_path):
    (tmp_path / "video0").write_bytes(b"none")
    with pytest.raises(DeviceError, match="it has no video"):
        next(device.play_device(str(tmp_path / "video0"), 90))
    with pytest.raises(DeviceError, match="it does not exist"):
        next(device.play_device(str(tmp_path / "video1"), 90))


@pytest.mark.parametrize(("number", "told"), [("EBUSY", "another program uses it"), ("ENODEV", "it was unplugged")])
def test_a_device_that_is_taken_or_gone_is_told(monkeypatch, number, told):
    def refuse(*_, **__):
        code = getattr(errno, number)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(av, "open", refuse)
    with pytest.raises(DeviceError, match=told):
        device.open_device("/dev/video0")


def test_pictures_that_a_camera_codes_as_jpeg_are_passed_on_as_they_are(tmp_path):
    sent = [noisy_jpeg(number) for number in range(4)]
    (tmp_path / "camera.mjpeg").write_bytes(b"".join(sent))
    with av.open(str(tmp_path / "camera.mjpeg"), format="mjpeg") as container:
        assert list(device.pictures(container, 90)) == sent


def test_bare_pictures_are_coded_and_what_a_camera_does_not_offer_is_not_insisted_on(monkeypatch):
    # lavfi knows none of V4L2's options: as a camera without JPEG in that size, it is opened with the last wish.
    monkeypatch.setattr(device, "FORMAT", "lavfi")
    found = islice(device.play_device("color=c=red:size=320x240:rate=5,format=yuyv422", 90), 3)
    pictures = [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for data in found]
    assert all(picture.shape == (240, 320, 3) for picture in pictures)
    assert np.abs(pictures[-1].mean((0, 1)) - (0, 0, 254)).max() < 6  # BGR
