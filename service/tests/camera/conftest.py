import asyncio
import ssl
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from harness.eventually import eventually
from harness.need import OPENSSL
from harness.settings import camera_settings

from embereye.camera.shard import CameraShard
from embereye.camera.sources.declared import SourceError
from embereye.process.event_loop import EventLoop
from embereye.process.tasks import Tasks
from embereye.shard.candidate.reports import CandidateReports
from embereye.shard.service import ShardContext
from embereye.units import MILLISECOND, SECOND
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device


def noisy_jpeg(seed=0, size=(96, 128), level=120):
    rng = np.random.default_rng(seed)
    picture = np.clip(rng.normal(level, 12, (*size, 3)), 0, 255).astype(np.uint8)
    return cv2.imencode(".jpg", picture)[1].tobytes()


def assignment(epoch, *devices, deadline_s=2.0, **extra):
    return Assignment(
        fleet="default/cameras/yard",
        shard="yard-0",
        epoch=epoch,
        devices=devices,
        camera=camera_settings(
            deadline=f"{deadline_s * SECOND / MILLISECOND:.0f}ms",
            detection={"detectors": ["motion", "flame", "smoke", "heat"]},
        ),
        **extra,
    )


def device(camera, source="", **extra):
    return Device(id=camera, zone=extra.pop("zone", "hall"), source=source, **extra)


async def play(source, frames=5):
    """Return the frames and states of `source`, and why it ended, if it did."""
    units, states = [], []
    player = asyncio.ensure_future(source.play(lambda unit, *_: units.append(unit), states.append))
    await eventually(lambda: len(units) >= frames or player.done(), 60)
    player.cancel()
    try:
        await player
    except SourceError as error:
        return units, states, str(error)
    except asyncio.CancelledError:
        pass
    return units, states, ""


def pytest_asyncio_loop_factories(config, item):
    """Run shards on uvloop, whose transports differ from asyncio's."""
    return {"uvloop": EventLoop}


@pytest.fixture
async def running():
    """Run a shard and record its reports."""
    shard = CameraShard(decoders=2)
    reports, changes = [], []
    async with Tasks() as tasks:
        context = ShardContext(
            options=SimpleNamespace(data=None, shard="yard-0"),  # type: ignore[arg-type] # a camera shard reads only these
            tasks=tasks,
            report=reports.append,
            coverage_changed=lambda: changes.append(1),
            candidates=CandidateReports(lambda: ("default/cameras/yard", "yard-0")),
        )
        await shard.start(context)
        yield SimpleNamespace(shard=shard, reports=reports, changes=changes, tasks=tasks)
        await shard.stop()
        await shard.stop()


def status_of(shard, camera, now_ns=None):
    return next(status for status in shard.devices(now_ns or time.time_ns()) if status.id == camera)


class Presented(ssl.SSLContext):
    """A server's context that knows the path of its certificate."""

    path: Path


@pytest.fixture
def certificate(tmp_path):
    """Create a server's context; `path` is the self-signed certificate."""
    return _presented(tmp_path, "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@pytest.fixture
def old_certificate(tmp_path):
    """Create the context of an old camera, which has only the old ciphers and versions of the parameter."""
    context = _presented(tmp_path, "rsa:1024")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    return context


def _presented(folder, *key):
    OPENSSL.require()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", *key, "-nodes", "-days", "1",
         "-subj", "/CN=camera", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", folder / "key", "-out", folder / "certificate"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = Presented(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(folder / "certificate", folder / "key")
    context.path = folder / "certificate"
    return context
