"""From nothing to a covered camera with a password and a covered smoke detector that alarms, by typed commands.

The commands are those of docs/tutorials/own-devices.md, with a log-in for the broker. Each is printed. mediamtx is the
camera, and Mosquitto the broker that a Zigbee gateway publishes to.

`e2e/fresh --own-devices` runs this with the commands typed in a bare Debian, the folder EMBEREYE_BARE, from the
installation on; camera and broker stay outside. Otherwise this checkout is what is installed.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiomqtt
import pytest
from harness.eventually import wait_for
from harness.need import FFMPEG, MEDIAMTX, MOSQUITTO, ROOT, program
from harness.servers.mediamtx import mediamtx_settings
from harness.servers.mosquitto import PASSWORD, Mosquitto

from embereye.process.addresses import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.needs(MEDIAMTX, FFMPEG, MOSQUITTO), pytest.mark.timeout(600)]
MOST = 10  # typed commands
PAGE = (ROOT / "docs/tutorials/own-devices.md").read_text()
INSTALLATION = [line.partition("  #")[0] for line in PAGE.partition("```\n")[2].partition("```")[0].splitlines()]
# The settings by which this machine reaches package indexes.
CARRIED = {
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "PIP_CERT"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT"),
}
LOGINS = """\
authInternalUsers:
- {user: any, permissions: [{action: publish}]}
- {user: viewer, pass: 'p@ss#word', permissions: [{action: read}]}
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
    (tmp_path / "camera.yml").write_text(mediamtx_settings(port, LOGINS))
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
    """Somebody who types commands on this machine; each is printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # the site's files
        self.typed = 0
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("EMBEREYE_")}

    def install(self) -> None:
        """This checkout is installed; the page's commands for it still count."""
        self.typed += len(INSTALLATION)

    def _command(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "embereye_cli", *words]

    def _start(self, words: Sequence[str]) -> list[str]:
        self.typed += 1
        print(f"$ embereye {shlex.join(words)}", flush=True)
        return self._command(words)

    def run(self, *words: str, typed: str = "") -> str:
        done = subprocess.run(
            self._start(words), input=typed, cwd=self.folder, env=self._environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        print(done.stdout, done.stderr, flush=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[None]:
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                self._start(words), cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
            try:
                yield
            finally:
                self._stop(process)
                process.wait(60)
                log.seek(0)
                print(log.read()[-2000:], flush=True)

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Look, as a person looks at the table: not a command of the way there."""
        return subprocess.run(
            self._command(words), cwd=self.folder, env=self._environment,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


class BareTerminal(Terminal):
    """Somebody who types commands in the bare Debian in the folder `root`, as the user newcomer."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "home/newcomer")
        self._root = root

    def install(self) -> None:
        for line in INSTALLATION:
            self.typed += 1
            print(f"$ {line}", flush=True)
            subprocess.run(self._shell(line), check=True, timeout=600)

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()  # unshare ignores other signals; its processes end with it

    def _command(self, words: Sequence[str]) -> list[str]:
        return self._shell(f"exec embereye {shlex.join(words)}")

    def _shell(self, line: str) -> list[str]:
        """The command that types `line` in a shell there, after what the first command activated."""
        carried = [f"{name}={value}" for name, value in os.environ.items() if name in CARRIED]
        variables = [*carried, "HOME=/home/newcomer", "USER=newcomer", "PATH=/usr/local/bin:/usr/bin:/bin"]
        activated = f"cd; [ ! -f embereye/bin/activate ] || . embereye/bin/activate; {line}"
        mounts = 'mount -t proc proc "$0/proc" && mount -t tmpfs -o mode=1777 shm "$0/dev/shm" && chroot "$@"; exit $?'
        separate = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "bash", "-c", mounts, self._root)
        user = ("--userspec=newcomer", "--groups=", self._root, "env", "--ignore-environment", *variables)
        return [*map(str, (*separate, *user)), "bash", "-c", activated]


def report(broker: Mosquitto, **values: object) -> None:
    """Publish as Zigbee2MQTT does for its device "Kitchen smoke"."""

    async def publish() -> None:
        async with aiomqtt.Client("127.0.0.1", broker.port, username="ember", password=PASSWORD) as client:
            await client.publish("zigbee2mqtt/Kitchen smoke", json.dumps(values), qos=1)

    asyncio.run(publish())


def test_ten_commands_lead_to_a_covered_camera_and_a_detector_that_alarms(
    tmp_path: Path, broker: Mosquitto, camera: str
) -> None:
    bare = os.environ.get("EMBEREYE_BARE")
    terminal = BareTerminal(Path(bare)) if bare else Terminal(tmp_path)
    site = terminal.folder
    terminal.install()
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
    wait_for(lambda: "first after" in terminal.ask("doctor", "fleet.yaml", *ports).stdout, "the camera never plays")
    assert "camera yard: H.264 320x240" in terminal.run("doctor", "fleet.yaml", *ports)
    with terminal.running("up", "fleet.yaml", *ports):

        def is_watched(device: str) -> bool:
            return terminal.ask("explain", "device", device).returncode == 0

        wait_for(lambda: is_watched("yard"), "the camera is not covered")
        assert not is_watched("kitchen-smoke"), "a detector that said nothing is not covered"

        def is_watched_after_a_report() -> bool:
            report(broker, smoke=False, battery=90)
            return is_watched("kitchen-smoke")

        wait_for(is_watched_after_a_report, "the detector is not covered")
        report(broker, smoke=True, battery=90)
        wait_for(lambda: '"ZONE_STATE_ALARM"' in terminal.ask("alarms", "list", "--json").stdout, "no alarm")
        zones = terminal.run("alarms", "list")
    assert "kitchen" in zones
    assert terminal.typed <= MOST
