"""Local cameras. Test machines have none, and no kernel module that simulates one.

Other inputs of libavdevice and libavformat are used instead, read by the same code. Only the errors for invalid files
come from V4L2.
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
def test_a_local_camera_is_declared_by_its_path(declared):
    assert parse_source(declared).kind == "device"
    assert isinstance(open_source(declared, DialLimiter(1), SocketPoller()), DeviceSource)
    assert parse_source("/dev/video0.mp4").kind == "file"


def played(path):
    return DeviceSource(str(path), DialLimiter(1).starts).play(lambda *_: None, lambda _: None)


async def test_a_missing_or_forbidden_device_is_reported_with_a_remedy(tmp_path, monkeypatch):
    with pytest.raises(SourceError, match="Plug in the camera, and run the shard on its machine"):
        await played("/dev/video999")
    (tmp_path / "video0").write_bytes(b"")
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root, which ignores permissions
    with pytest.raises(SourceError, match="Add the user to the group video"):
        await played(tmp_path / "video0")


def test_a_file_that_is_no_device_is_reported(tmp_path):
    (tmp_path / "video0").write_bytes(b"none")
    with pytest.raises(DeviceError, match="it has no video"):
        next(device.play_device(str(tmp_path / "video0"), 90))
    with pytest.raises(DeviceError, match="it does not exist"):
        next(device.play_device(str(tmp_path / "video1"), 90))


@pytest.mark.parametrize(("number", "problem"), [("EBUSY", "another program uses it"), ("ENODEV", "it was unplugged")])
def test_a_device_that_is_in_use_or_unplugged_is_reported(monkeypatch, number, problem):
    def refuse(*_, **__):
        code = getattr(errno, number)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(av, "open", refuse)
    with pytest.raises(DeviceError, match=problem):
        device.open_device("/dev/video0")


def test_jpeg_pictures_of_a_local_camera_are_passed_on_unchanged(tmp_path):
    sent = [noisy_jpeg(number) for number in range(4)]
    (tmp_path / "camera.mjpeg").write_bytes(b"".join(sent))
    with av.open(str(tmp_path / "camera.mjpeg"), format="mjpeg") as container:
        assert list(device.pictures(container, 90)) == sent


def test_raw_pictures_are_coded_and_unsupported_formats_not_required(monkeypatch):
    # lavfi knows none of V4L2's options, so it is opened with the last choice, like a camera without JPEG in that size.
    monkeypatch.setattr(device, "FORMAT", "lavfi")
    frames = islice(device.play_device("color=c=red:size=320x240:rate=5,format=yuyv422", 90), 3)
    pictures = [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for data in frames]
    assert all(picture.shape == (240, 320, 3) for picture in pictures)
    assert np.abs(pictures[-1].mean((0, 1)) - (0, 0, 254)).max() < 6  # BGR
