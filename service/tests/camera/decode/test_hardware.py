"""Hardware decoding on machines without the hardware; elsewhere these tests are skipped."""

import asyncio
import sys

import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.decode import hardware
from embereye.camera.decode.image import DecodeOrder
from embereye.camera.decode.video import VideoDecoder
from embereye.camera.hardware_decoding import HardwareDecoding
from embereye.camera.shard import CameraShard
from embereye.process.tasks import Tasks

from ...wire.video.coded import coded
from ..conftest import assignment, device, status_of
from ..test_shard_streams import serving, started


async def reason_without(kind):
    if not (reason := await hardware.unusable_reason(kind)):
        pytest.skip(f"this machine decodes by {kind}")
    return reason


@pytest.mark.parametrize("kind", ["vaapi", "nvdec"])
@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_without_the_hardware_pictures_are_decoded_in_software(kind, encoding, monkeypatch):
    reason = await reason_without(kind)
    assert "lacks" in reason or "the device cannot be opened" in reason
    units = [
        (b"".join(b"\0\0\0\1" + nal for nal in nals), number) for number, (_, nals) in enumerate(coded(encoding, 8))
    ]
    plain = VideoDecoder(encoding).decode(DecodeOrder(1), units)
    monkeypatch.setenv(hardware.VARIABLE, kind)
    assert np.array_equal(VideoDecoder(encoding).decode(DecodeOrder(1), units).image, plain.image)


async def test_a_driver_that_crashes_or_hangs_is_reported_without_side_effects(monkeypatch, tmp_path):
    for body, expected in (
        ("kill -SEGV $$", "the driver crashed its test process (exit code -11)"),
        ("sleep 60", "no picture within"),
    ):
        driver = tmp_path / "driver"
        driver.write_text(f"#!/bin/sh\nexec 2>&-\n{body}\n")
        driver.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(driver))
        monkeypatch.setattr(hardware, "PROBE_SECONDS", 1.0)
        assert expected in await hardware.unusable_reason("nvdec")


async def test_working_hardware_is_reported_as_such(monkeypatch, tmp_path):
    driver = tmp_path / "driver"
    driver.write_text("#!/bin/sh\n")
    driver.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(driver))
    decoding = HardwareDecoding("vaapi")
    await decoding.find()
    assert not decoding.degraded
    (metric,) = decoding.metrics()
    assert [(sample.labels, sample.value) for sample in metric.samples] == [({"kind": "vaapi"}, 1)]


async def test_nothing_is_reported_if_no_hardware_was_requested():
    decoding = HardwareDecoding("")
    await decoding.find()
    assert (decoding.degraded, list(decoding.metrics())) == ("", [])


async def test_a_shard_reports_why_its_videos_are_decoded_in_software(monkeypatch, tmp_path):
    await reason_without("nvdec")
    monkeypatch.setenv(hardware.VARIABLE, "nvdec")
    shard = CameraShard(decoders=1)
    async with Tasks() as tasks, serving("small", (160, 120)) as port:
        await started(shard, tasks, tmp_path)
        shard.apply(assignment(1, device("gate", f"rtsp://127.0.0.1:{port}/small")))
        await eventually(lambda: status_of(shard, "gate").covered)
        await eventually(lambda: "; decoded in software instead of nvdec: " in status_of(shard, "gate").state)
        assert "decoded in software instead of nvdec" in shard.degraded()
        values = {sample.labels["kind"]: sample.value for metric in shard.metrics() for sample in metric.samples
                  if metric.name == "embereye_camera_hardware_decoding"}  # fmt: skip
        assert values == {"nvdec": 0}
        shard.apply(assignment(2))
        await asyncio.sleep(0)
        await shard.stop()
