"""Audio tracks by RTSP: mediamtx is the cameras, FFmpeg their microphones. AAC beside video, G.711 and Opus."""

import asyncio
import contextlib
import shutil
import socket

import numpy as np
import pytest
from harness.eventually import eventually
from harness.need import FFMPEG, MEDIAMTX, program
from harness.servers.mediamtx import mediamtx_settings
from harness.source_shard import SourceShard

from embereye.addons.sound.pattern import RATE
from embereye.addons.sound.sensors import SoundSensors
from embereye.addons.sound.tests.test_microphone import recorded
from embereye.process.addresses import free_port
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source

from .synthesis import alarm

pytestmark = [pytest.mark.needs(MEDIAMTX, FFMPEG), pytest.mark.slow, pytest.mark.timeout(180)]
VIDEO = "-re -f lavfi -i testsrc2=size=160x120:rate=5 -c:v libx264 -preset ultrafast -bf 0 -g 5"
CODECS = {  # path → further input and codecs
    "aac": f"{VIDEO} -c:a aac -b:a 64k",
    "pcmu": "-c:a pcm_mulaw -ar 8000 -ac 1",
    "opus": "-c:a libopus -ar 48000",
}


@pytest.fixture
async def port(tmp_path):
    """The port of a server with a stream for each codec, in which an alarm sounds again and again."""
    at = free_port()
    (tmp_path / "cameras.yml").write_text(mediamtx_settings(at))
    sound = np.concatenate((np.zeros(2 * RATE), 0.1 * alarm("smoke", 28.0)))
    (tmp_path / "alarm.wav").write_bytes(recorded(sound + 0.001 * np.random.default_rng(1).standard_normal(len(sound))))
    async with contextlib.AsyncExitStack() as stack:
        await started(stack, program("mediamtx"), tmp_path / "cameras.yml")
        await eventually(lambda: is_listening(at), 30)
        for path, codec in CODECS.items():
            await started(
                stack, shutil.which("ffmpeg"), "-v", "quiet", "-re", "-stream_loop", "-1", "-i", tmp_path / "alarm.wav",
                *codec.split(), "-f", "rtsp", "-rtsp_transport", "tcp", f"rtsp://127.0.0.1:{at}/{path}",
            )  # fmt: skip
        yield at


async def started(stack, *command):
    process = await asyncio.create_subprocess_exec(*map(str, command), stdin=asyncio.subprocess.DEVNULL)

    async def end():
        process.kill()
        await process.wait()

    stack.push_async_callback(end)


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_an_alarm_in_an_audio_track_is_a_sign_in_each_codec(port):
    devices = [
        Device(id=path, zone="hall", source=encode_source(SensorSource(f"sound+rtsp://127.0.0.1:{port}", f"/{path}")))
        for path in CODECS
    ]
    shard = SourceShard(SoundSensors(), *devices)
    shard.apply()
    try:
        await eventually(lambda: {sign.device for sign in shard.signs} == set(CODECS), 120)
    finally:
        await shard.stop()
    assert all(sign.note.startswith("smoke-alarm sound (three pulses, 3,1") for sign in shard.signs)
