"""A smoke alarm in the audio track of cameras by RTSP is an alarm at a real hub: AAC beside video, G.711 and Opus.

mediamtx is the cameras, FFmpeg the microphones. The sound is synthetic.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from harness.need import FFMPEG, MEDIAMTX, program
from harness.servers.mediamtx import mediamtx_settings

from embereye.addons.sound.pattern import RATE
from embereye.process.addresses import free_ports

from .synthesis import alarm

pytestmark = [pytest.mark.slow, pytest.mark.needs(MEDIAMTX, FFMPEG), pytest.mark.timeout(300)]
VIDEO = "-re -f lavfi -i testsrc2=size=320x240:rate=10 -c:v libx264 -preset ultrafast -bf 0 -g 10"
CODECS = {  # name → further input and codecs
    "aac": f"{VIDEO} -c:a aac -b:a 64k",
    "pcmu": "-c:a pcm_mulaw -ar 8000 -ac 1",
    "opus": "-c:a libopus -ar 48000",
}
FLEET = """
apiVersion: embereye.dev/v1beta1
kind: SensorFleet
metadata: {{name: microphones}}
spec:
  listen: {{tcp: {tcp}, grpc: {grpc}}}
  deadline: 10s
  sensors:
"""


@pytest.fixture
def cameras(tmp_path: Path) -> Iterator[int]:
    """The port of a server with a stream for each codec, in which an alarm sounds again and again."""
    (port,) = free_ports(1)
    (tmp_path / "cameras.yml").write_text(mediamtx_settings(port))
    sound = np.concatenate((np.zeros(2 * RATE), 0.1 * alarm("smoke", 28.0)))
    sound += 0.001 * np.random.default_rng(1).standard_normal(len(sound))
    with wave.open(str(tmp_path / "alarm.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sound * 32767).astype("<i2").tobytes())
    ffmpeg = shutil.which("ffmpeg")
    commands = [[str(program("mediamtx")), str(tmp_path / "cameras.yml")]]
    for name, codec in CODECS.items():
        publish = (
            f"{ffmpeg} -v quiet -re -stream_loop -1 -i {tmp_path}/alarm.wav {codec} "
            f"-f rtsp -rtsp_transport tcp rtsp://127.0.0.1:{port}/{name}"
        )
        commands.append(["sh", "-c", f"while :; do {publish}; sleep 0.5; done"])
    with contextlib.ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
            stack.callback(os.killpg, process.pid, 9)
        yield port


def test_an_alarm_sound_by_rtsp_is_an_alarm_at_the_hub_in_each_codec(tmp_path: Path, cameras: int) -> None:
    console, hub, tcp, grpc = free_ports(4)
    lines = [
        f"    - {{id: {name}, zone: {name}, source: 'sound:rtsp://127.0.0.1:{cameras}/{name}'}}" for name in CODECS
    ]
    (tmp_path / "fleet.yaml").write_text(FLEET.format(tcp=tcp, grpc=grpc) + "\n".join(lines) + "\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("EMBEREYE_")}
    ports = ["--console-port", str(console), "--hub-port", str(hub)]

    def embereye(*words: str) -> list[str]:
        return [sys.executable, "-m", "embereye_cli", *words]

    def alarms() -> str:
        return subprocess.run(
            embereye("alarms", "list"), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
            check=False,
        ).stdout  # fmt: skip

    with (tmp_path / "up.log").open("w") as log:
        process = subprocess.Popen(
            embereye("up", "fleet.yaml", *ports), cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
        try:
            end = time.monotonic() + 180
            while (listed := alarms()).count(" ALARM ") < len(CODECS):
                assert time.monotonic() < end, listed + (tmp_path / "up.log").read_text()[-3000:]
                time.sleep(2)
        finally:
            process.terminate()
            process.wait(60)
    print(listed)
