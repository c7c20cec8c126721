"""A real HTTP server as a device that is read: values, logins, redirects, outages and slow answers."""

import json

import pytest
from aiohttp import web
from harness.eventually import eventually
from harness.source_shard import SourceShard

from embereye.addons.http_sensors.poll import MAX_ANSWER
from embereye.addons.http_sensors.sensors import HttpSensors
from embereye.levels import Kind, Level
from embereye.process.addresses import free_ports
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source

FIELDS = {"smoke": "alarm=ON", "temperature": "sensors[0].celsius"}
CALM = {"alarm": "OFF", "sensors": [{"celsius": 21.5}]}


class Boiler:
    """A device that answers with `answer`."""

    def __init__(self):
        (self.port,) = free_ports(1)
        self.answer, self.status, self.headers, self.seen = json.dumps(CALM), 200, {}, []

    async def _status(self, request):
        self.seen.append((request.path_qs, request.headers.get("Authorization")))
        return web.Response(text=self.answer, status=self.status, headers=self.headers)

    async def start(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self._status)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()

    async def stop(self):
        await self.runner.cleanup()


@pytest.fixture
async def boiler():
    served = Boiler()
    await served.start()
    yield served
    await served.stop()


class Shard(SourceShard):
    """A shard with one boiler."""

    def __init__(self, port, path="/status.json?key=1", credentials=""):
        source = SensorSource(f"http://127.0.0.1:{port}", path, "plain", FIELDS, 0, 0)
        spec = Device(id="boiler", zone="hall", credentials=credentials, source=encode_source(source))
        super().__init__(HttpSensors(default_interval=0.02), spec)
        self.device = self.devices["boiler"]
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


async def test_a_url_is_read_by_its_fields(boiler, shard):
    watched = shard(boiler.port)
    await eventually(watched.reports)
    assert watched.reports()[0] == {"smoke": 0, "temperature": 21.5}
    assert boiler.seen[0] == ("/status.json?key=1", None)
    boiler.answer = json.dumps(CALM | {"alarm": "ON"})
    await eventually(lambda: watched.signs)
    assert (watched.signs[-1].kind, watched.signs[-1].level) == (Kind.SMOKE, Level.ALARM)


@pytest.mark.parametrize(
    ("files", "expected"),
    [({"token": "abc\n"}, "Bearer abc"), ({"username": "ember", "password": "pä"}, "Basic ZW1iZXI6cMOk")],
)
async def test_the_secret_is_sent_and_read_again(boiler, shard, tmp_path, monkeypatch, files, expected):
    (tmp_path / "boiler").mkdir()
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path))
    watched = shard(boiler.port, credentials="boiler")
    await eventually(lambda: "neither token nor username" in watched.device.link_problem)
    for name, text in files.items():
        (tmp_path / "boiler" / name).write_text(text)
    await eventually(lambda: boiler.seen and boiler.seen[-1][1] == expected)
    await eventually(watched.reports)


@pytest.mark.parametrize(
    ("status", "headers", "answer", "sentence"),
    [
        (404, {}, "", "answers 404 Not Found"),
        (401, {}, "", "credentialsRef"),
        (302, {"Location": "http://elsewhere/x?key=1"}, "", "it has moved to http://elsewhere/x. Declare"),
        (200, {}, "<html>", "none of the quantities"),
        (200, {}, '{"alarm": null}', "none of the quantities"),
        (200, {}, "x" * (MAX_ANSWER + 1), "more than 262144 bytes"),
    ],
)
async def test_an_unusable_answer_darkens_the_sensor_with_the_reason(boiler, shard, status, headers, answer, sentence):
    boiler.status, boiler.headers, boiler.answer = status, headers, answer
    watched = shard(boiler.port)
    await eventually(lambda: watched.device.link_problem)
    assert sentence in watched.device.link_problem
    assert "key=1" not in watched.device.link_problem
    assert sentence in watched.source.problem()
    assert not watched.reports()


async def test_an_outage_darkens_the_sensor_until_it_answers_again(boiler, shard):
    watched = shard(boiler.port)
    await eventually(watched.reports)
    await boiler.stop()
    await eventually(lambda: watched.device.link_problem)
    lost_ns = watched.device._link_lost_ns
    assert f"127.0.0.1:{boiler.port}" in watched.device.reason(lost_ns + 6 * SECOND, 5 * SECOND)
    await boiler.start()
    await eventually(lambda: not watched.device.link_problem, 60)
    assert not watched.source.problem()


async def test_a_sensor_that_leaves_is_read_no_more(boiler, shard):
    watched = shard(boiler.port)
    await eventually(watched.reports)
    watched.source.apply("default/sensors/test", [])
    assert not watched.source._polling
