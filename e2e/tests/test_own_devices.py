"""From nothing to a covered camera with a password and a covered smoke detector that alarms, by typed commands.

The commands are those of docs/tutorials/own-devices.md, with a log-in for the broker. Each is printed. mediamtx is the
camera, and Mosquitto the broker that a Zigbee gateway publishes to.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiomqtt
import pytest
from harness.need import FFMPEG, MEDIAMTX, MOSQUITTO, program
from harness.servers.mosquitto import PASSWORD, Mosquitto

from embereye.process.addresses import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.needs(MEDIAMTX, FFMPEG, MOSQUITTO), pytest.mark.timeout(300)]
MOST = 10  # typed commands
CAMERA = """
logLevel: error
rtspAddress: 127.0.0.1:{port}
rtspTransports: [tcp]
rtmp: no
hls: no
webrtc: no
srt: no
authInternalUsers:
- {{user: any, permissions: [{{action: publish}}]}}
- {{user: viewer, pass: 'p@ss#word', permissions: [{{action: read}}]}}
paths: {{all_others: {{}}}}
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path / "mosquitto", users=("ember",))
    mosquitto.start()
    yield mosquitto
    mosquitto.stop()


@pytest.fixture
def camera(tmp_path: Path) -> Iterator[str]:
    """The address of a camera that asks for a password."""
    (port,) = free_ports(1)
    (tmp_path / "camera.yml").write_text(CAMERA.format(port=port))
    ffmpeg = shutil.which("ffmpeg")
    assert ffmpeg
    address = f"rtsp://127.0.0.1:{port}/live"
    with contextlib.ExitStack() as stack:
        for command in (
            [program("mediamtx"), tmp_path / "camera.yml"],
            ["sh", "-c", f"while :; do {ffmpeg} -v quiet -re -f lavfi -i testsrc2=size=320x240:rate=10 -c:v libx264 "
             f"-preset ultrafast -bf 0 -g 10 -f rtsp -rtsp_transport tcp {address}; sleep 0.5; done"],
        ):  # fmt: skip
            process = subprocess.Popen(list(map(str, command)), start_new_session=True)
            stack.callback(os.killpg, process.pid, 9)
        yield address


class Terminal:
    """Somebody who types commands; each is printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.typed = 0
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("EMBEREYE_")}

    def _command(self, words: tuple[str, ...]) -> list[str]:
        self.typed += 1
        print(f"$ embereye {' '.join(words)}", flush=True)
        return [sys.executable, "-m", "embereye_cli", *words]

    def run(self, *words: str, typed: str = "") -> str:
        done = subprocess.run(
            self._command(words), input=typed, cwd=self.folder, env=self.environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        print(done.stdout, done.stderr, flush=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[None]:
        with (self.folder / "up.log").open("w") as log:
            process = subprocess.Popen(
                self._command(words), cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)
                print((self.folder / "up.log").read_text()[-2000:], flush=True)

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Look, as a person looks at the table: not a command of the way there."""
        command = [sys.executable, "-m", "embereye_cli", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )


def wait(condition: Callable[[], bool], goal: str, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, goal
        time.sleep(1.0)


def report(broker: Mosquitto, **values: object) -> None:
    """Publish as Zigbee2MQTT does for its device "Kitchen smoke"."""

    async def publish() -> None:
        async with aiomqtt.Client("127.0.0.1", broker.port, username="ember", password=PASSWORD) as client:
            await client.publish("zigbee2mqtt/Kitchen smoke", json.dumps(values), qos=1)

    asyncio.run(publish())


def test_ten_commands_lead_to_a_covered_camera_and_a_detector_that_alarms(
    tmp_path: Path, broker: Mosquitto, camera: str
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    terminal = Terminal(site)
    console, hub, tcp, grpc, cameras = map(str, free_ports(5))
    ports = ["--console-port", console, "--hub-port", hub]
    terminal.run(
        "init", "--camera", f"yard={camera}", "--credentials", "gate",
        "--sensor", "kitchen=zigbee2mqtt/Kitchen smoke", "--broker", f"mqtt://127.0.0.1:{broker.port}",
        "--broker-credentials", "broker",
    )  # fmt: skip
    fleet = (site / "fleet.yaml").read_text()  # other tests may use its ports meanwhile
    fleet = fleet.replace("grpc: 50061", f"grpc: {cameras}").replace(
        "  mqtt:", f"  listen: {{tcp: {tcp}, grpc: {grpc}}}\n  mqtt:"
    )
    (site / "fleet.yaml").write_text(fleet)
    terminal.run("credentials", "set", "gate", "--user", "viewer", typed="p@ss#word\n")
    terminal.run("credentials", "set", "broker", "--user", "ember", typed=f"{PASSWORD}\n")
    wait(lambda: "first after" in terminal.ask("doctor", "fleet.yaml", *ports).stdout, "the camera never plays")
    assert "camera yard: H.264 320x240" in terminal.run("doctor", "fleet.yaml", *ports)
    with terminal.running("up", "fleet.yaml", *ports):

        def is_watched(device: str) -> bool:
            return terminal.ask("explain", "device", device).returncode == 0

        wait(lambda: is_watched("yard"), "the camera is not covered")
        assert not is_watched("kitchen-smoke"), "a detector that said nothing is not covered"

        def is_watched_after_a_report() -> bool:
            report(broker, smoke=False, battery=90)
            return is_watched("kitchen-smoke")

        wait(is_watched_after_a_report, "the detector is not covered")
        report(broker, smoke=True, battery=90)
        wait(lambda: '"ZONE_STATE_ALARM"' in terminal.ask("alarms", "list", "--json").stdout, "no alarm")
        zones = terminal.run("alarms", "list")
    assert "kitchen" in zones
    assert terminal.typed <= MOST - 2, "two more install it"
