"""A real stream, decoded by FFmpeg's libraries: alarms, logins, cameras without sound, outages."""

import io
import wave

import numpy as np
import pytest
from aiohttp import encode_basic_auth, web
from harness.eventually import eventually
from harness.source_shard import SourceShard

from embereye.addons.sound.pattern import RATE
from embereye.addons.sound.sensors import SoundSensors
from embereye.levels import Kind, Level
from embereye.process.addresses import free_ports
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source

from .synthesis import alarm


def recorded(sound, rate=RATE):
    """A WAV file with `sound`, within ±1."""
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((sound * 32767).astype("<i2").tobytes())
    return target.getvalue()


class Server:
    """Serves one recording to clients with the login, if there is one."""

    def __init__(self):
        (self.port,) = free_ports(1)
        self.content, self.login, self.logins = (
            recorded(np.concatenate((np.zeros(2 * RATE), 0.1 * alarm("smoke", 14.0)))),
            None,
            [],
        )

    async def _play(self, request):
        self.logins.append(request.headers.get("Authorization"))
        if self.login and self.logins[-1] != self.login:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return web.Response(body=self.content, content_type="audio/wav")

    async def start(self):
        app = web.Application()
        app.router.add_get("/sound", self._play)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()

    async def stop(self):
        await self.runner.cleanup()


@pytest.fixture
async def server():
    served = Server()
    await served.start()
    yield served
    await served.stop()


class Shard(SourceShard):
    """A shard with one microphone."""

    def __init__(self, port, credentials=""):
        source = SensorSource(f"sound+http://127.0.0.1:{port}", "/sound")
        spec = Device(id="yard", zone="hall", credentials=credentials, source=encode_source(source))
        super().__init__(SoundSensors(), spec)
        self.device = self.devices["yard"]
        self.apply()


@pytest.fixture
async def shard():
    made = []

    def make(port, **options):
        made.append(Shard(port, **options))
        return made[-1]

    yield make
    for each in made:
        await each.stop()


async def test_a_smoke_alarm_in_a_stream_is_a_sign_of_smoke(server, shard):
    watched = shard(server.port)
    await eventually(lambda: watched.signs, 60)
    sign = watched.signs[0]
    assert (sign.kind, sign.level) == (Kind.SMOKE, Level.ALARM)
    assert sign.note.startswith("smoke-alarm sound (three pulses, 3,100 Hz) for ")
    assert watched.reports()[0] == {}  # nothing is known yet, but the microphone lives
    assert watched.device.arrivals.watch.heard_ns


async def test_a_quiet_stream_of_another_rate_is_clear_after_a_while(server, shard):
    noise = np.random.default_rng(1).standard_normal(20 * 8000) * 0.01
    server.content = recorded(noise, rate=8000)
    watched = shard(server.port)
    await eventually(lambda: {"smoke": 0, "carbonMonoxide": 0} in watched.reports(), 60)
    assert not watched.signs


async def test_the_login_is_sent_and_never_shown(server, shard, tmp_path, monkeypatch):
    server.login = encode_basic_auth("ember", "p@ss/word")
    (tmp_path / "camera").mkdir()
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path))
    watched = shard(server.port, credentials="camera")
    await eventually(lambda: "not mounted" in watched.device.link_problem, 60)
    (tmp_path / "camera" / "username").write_text("ember\n")
    (tmp_path / "camera" / "password").write_text("wrong-word\n")
    await eventually(lambda: "not mounted" not in watched.device.link_problem, 60)
    await eventually(lambda: server.logins, 60)
    assert "wrong-word" not in watched.device.link_problem
    (tmp_path / "camera" / "password").write_text("p@ss/word\n")
    await eventually(lambda: watched.signs, 60)


async def test_a_microphone_that_is_off_darkens_its_sensor(server, shard):
    server.content = recorded(np.zeros(70 * RATE))
    watched = shard(server.port)
    await eventually(lambda: "is the microphone on?" in watched.device.link_problem, 60)
    assert "is the microphone on?" in watched.source.problem()


async def test_a_server_that_is_gone_darkens_the_sensor_until_it_is_back(server, shard):
    await server.stop()
    watched = shard(server.port)
    await eventually(lambda: watched.device.link_problem, 60)
    lost_ns = watched.device._link_lost_ns
    assert f"sound of http://127.0.0.1:{server.port}: " in watched.device.reason(lost_ns + 6 * SECOND, 5 * SECOND)
    await server.start()
    await eventually(watched.reports, 60)


async def test_a_sensor_that_leaves_is_heard_no_more(server, shard):
    watched = shard(server.port)
    await eventually(watched.reports, 60)
    watched.source.apply("default/sensors/test", [])
    assert not watched.source._heard
