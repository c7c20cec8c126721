"""Real shards and real requests: answers, tokens, limits, forwarding, hand-over and drain."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from harness.eventually import eventually

from embereye.addons.http_sensors.sensors import open_source
from embereye.addons.http_sensors.server import BURST, MAX_BODY
from embereye.process.addresses import free_ports
from embereye.process.grpc_server import GrpcServer
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.units import MINUTE, SECOND
from embereye.v1.shard_pb2 import AccessRules, Assignment, Peer
from embereye.v1.types_pb2 import Device
from embereye.wire.readings.source import SensorSource, encode_source

from embereye_operator.api.sensors import SensorFleetSpec  # isort: skip
from embereye_operator.decide.placement.assignments import build_sensor_settings

KITCHEN, YARD = "kitchen-token-0123456789", "yard-token-0123456789"
TTN = {"uplink_message": {"decoded_payload": {"smoke": True, "battery": 70}}}


def declared(name, template="plain", fields=None, deadline=70 * MINUTE):
    source = encode_source(SensorSource("push://fleet", name, template, fields or {}, deadline))
    return Device(id=name, zone="hall", source=source)


class Site:
    """Shards of one fleet, each with its own HTTP port."""

    def __init__(self):
        self.shards, self.ports, self.controls, self.evidence = [], [], [], []
        self.tasks, self.servers, self.devices, self.epoch, self.rules = Tasks(), [], {}, 0, None

    async def start(self, shards=1):
        for number, port in enumerate(free_ports(shards)):
            shard = SensorShard(sources={"push": open_source, "http": open_source})
            options = ShardOptions(f"s-{number}", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0, http_port=port)
            await shard.start(ShardContext(options, self.tasks, self.evidence.append, lambda: None))
            server = GrpcServer(shard.services(), control=True)
            self.controls.append(server.listen("127.0.0.1:0"))
            await server.start()
            self.shards.append(shard)
            self.ports.append(port)
            self.servers.append(server)

    def assign(self, *owners, also=None):
        """Give `owners[n]` to shard n; `also`: device → the shard to which it is being handed over."""
        self.epoch += 1
        settings = build_sensor_settings(SensorFleetSpec())
        settings.access.CopyFrom(self.rules or AccessRules(open=True))
        for number, names in enumerate(owners):
            elsewhere = {n: f"s-{other}" for other, listed in enumerate(owners) if other != number for n in listed}
            elsewhere |= {name: target for name, target in (also or {}).items() if target != f"s-{number}"}
            self.shards[number].apply(
                Assignment(
                    fleet="default/sensors/test", shard=f"s-{number}", epoch=self.epoch, sensor=settings,
                    devices=[self.devices.get(name) or declared(name) for name in names], elsewhere=elsewhere,
                    peers=[
                        Peer(shard=f"s-{other}", control=f"127.0.0.1:{port}")
                        for other, port in enumerate(self.controls) if other != number
                    ],
                )
            )  # fmt: skip

    def device(self, name, shard=0):
        return self.shards[shard].fleet.owned_devices[name]

    async def post(self, body, path="", *, shard=0, token="", **options):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = body if isinstance(body, bytes | str) else json.dumps(body)
        url = f"http://127.0.0.1:{self.ports[shard]}/v1/readings{path}"
        async with aiohttp.request("POST", url, data=data, headers=headers | options) as answer:
            return answer.status, await answer.json(), answer.headers

    async def stop(self):
        for shard, server in zip(self.shards, self.servers, strict=True):
            await shard.drain()
            await shard.stop()
            await server.stop(0)
        await self.tasks.stop()


@pytest.fixture
async def site():
    made = Site()
    yield made
    await made.stop()


async def test_an_alarm_is_answered_once_its_evidence_is_reported(site):
    await site.start()
    site.assign(["kitchen"])
    device = site.device("kitchen")
    assert device.reason(now_ns(), 5 * SECOND) == "no check-in yet, one is expected every 70 min"
    status, answer, _ = await site.post({"device": "kitchen", "readings": {"smoke": True, "battery": 90}})
    assert (status, answer) == (202, {"accepted": 1})
    assert [item.device for item in site.evidence] == ["kitchen"]
    assert not device.reason(now_ns(), 5 * SECOND)
    assert device.reason(now_ns() + 75 * MINUTE, 5 * SECOND) == "last check-in 75 min ago, allowed 70 min"


async def test_a_webhook_is_read_by_the_declared_template(site):
    await site.start()
    site.devices["yard"] = declared("yard", "ttn")
    site.assign(["yard"])
    assert (await site.post(TTN, "/yard"))[0] == 202
    assert site.device("yard").states.values == {"smoke": 1, "battery": 70}
    assert len(site.evidence) == 1


async def test_wrong_entries_are_named_and_the_others_are_analysed(site):
    await site.start()
    site.assign(["kitchen", "attic"])
    lines = "\n".join(
        json.dumps(entry)
        for entry in (
            {"device": "kitchen", "readings": {"smoke": False}},
            {"device": "nobody"},
            {"device": "attic", "readings": {"smoke": "perhaps"}},
        )
    )
    status, answer, _ = await site.post(lines, **{"Content-Type": "application/x-ndjson"})
    assert (status, answer["accepted"], answer["refused"]) == (422, 1, 2)
    assert [(problem["entry"], problem["device"]) for problem in answer["problems"]] == [(2, "nobody"), (3, "attic")]
    assert "add it to spec.sensors" in answer["problems"][0]["problem"]
    assert site.device("attic").arrivals.ledger.rejected["unreadable message"] == 1
    assert (await site.post({"device": "nobody"}))[0] == 404


async def test_quality_degrades_and_darkens(site):
    await site.start()
    site.assign(["kitchen"])
    device = site.device("kitchen")

    async def send(quality):
        entry = {"device": "kitchen", "readings": {"temperature": {"value": 900, "quality": quality}}}
        assert (await site.post(entry))[0] == 202

    await send("bad")
    assert device.reason(now_ns(), 5 * SECOND) == "it reports bad values of temperature"
    assert "temperature" not in device.states.values
    await send("uncertain")
    assert not device.reason(now_ns(), 5 * SECOND)
    assert device.states.degraded == "it reports uncertain values of temperature"


async def test_a_repeated_request_is_one_reading(site):
    await site.start()
    site.assign(["kitchen"])
    spike = {"device": "kitchen", "time": now_ns() / 1e9, "readings": {"temperature": 85}}
    for _ in range(3):
        assert (await site.post(spike))[0] == 202
    levels = {level for item in site.evidence for level in [item.level]}
    assert len(levels) <= 1  # one implausible value is at most a pre-alarm
    assert site.device("kitchen").arrivals.ledger.offered == 1


async def test_tokens_speak_for_their_devices_and_two_are_valid_at_once(site, tmp_path, monkeypatch):
    folder = tmp_path / "tokens"
    folder.mkdir()
    (folder / "devices").write_text(f"kitchen {KITCHEN}\nkitchen {KITCHEN}-new\nyard {YARD}\n")
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path))
    await site.start()
    site.rules = AccessRules(tokens="tokens")
    site.assign(["kitchen", "yard"])
    entry = {"readings": {"smoke": False}}
    status, answer, headers = await site.post(entry)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert 'send the header "Authorization: Bearer TOKEN"' in answer["problem"]
    assert (await site.post(entry, token="x" * 20))[0] == 401
    for token in (KITCHEN, f"{KITCHEN}-new"):
        assert (await site.post(entry, token=token))[0] == 202  # the token names the device
    status, answer, _ = await site.post({"device": "yard"}, token=KITCHEN)
    assert (status, answer["problem"]) == (403, 'the credentials are for device "kitchen", not for "yard"')
    assert site.device("kitchen").arrivals.ledger.analysed == 2


async def test_a_network_that_is_not_allowed_is_forbidden(site):
    await site.start()
    site.rules = AccessRules(networks=["10.0.0.0/8"], tokens="none")
    site.assign(["kitchen"])
    assert (await site.post({"device": "kitchen"}))[0] == 401  # loopback is always in the networks


@pytest.mark.parametrize(
    ("body", "headers", "status", "word"),
    [
        (b"x" * (MAX_BODY + 1), {}, 413, "split it"),
        (b"{", {}, 400, "not JSON"),
        (b"{}", {"Content-Encoding": "gzip"}, 415, "Content-Encoding"),
        (b"[]", {}, 202, ""),
        ("{}\n" * 5001, {"Content-Type": "application/x-ndjson"}, 413, "the most is 5000"),
        ({"readings": {}}, {}, 400, "names no device"),
    ],
)
async def test_requests_that_cannot_be_read_get_their_status(site, body, headers, status, word):
    await site.start()
    site.assign(["kitchen"])
    got, answer, _ = await site.post(body, **headers)
    assert got == status
    assert word in answer.get("problem", "")


async def test_other_paths_and_methods_say_what_to_do(site):
    await site.start()
    site.assign(["kitchen"])
    async with aiohttp.request("GET", f"http://127.0.0.1:{site.ports[0]}/v1/readings") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        assert "/v1/readings" in (await answer.json())["problem"]


async def test_a_device_that_floods_is_asked_to_wait(site):
    await site.start()
    site.assign(["kitchen", "attic"])
    many = [{"device": "kitchen"}] * int(BURST)
    assert (await site.post(many))[0] == 202
    status, _, headers = await site.post(many)
    assert status == 429
    assert int(headers["Retry-After"]) >= 1
    assert (await site.post({"device": "attic"}))[0] == 202


async def test_any_shard_accepts_the_readings_of_every_sensor(site):
    await site.start(2)
    site.assign(["kitchen"], ["attic"])
    both = [{"device": name, "readings": {"smoke": False}} for name in ("kitchen", "attic")]
    assert (await site.post(both, shard=0))[:2] == (202, {"accepted": 2})
    assert site.device("attic", 1).states.values == {"smoke": 0}
    status, answer, _ = await site.post({"device": "attic", "readings": {"smoke": "?"}}, shard=0)
    assert (status, answer["problems"][0]["device"]) == (422, "attic")


async def test_an_owner_that_does_not_answer_is_unavailable(site):
    await site.start(2)
    site.assign(["kitchen"], ["attic"])
    await site.servers[1].stop(0)
    status, answer, headers = await site.post([{"device": "kitchen"}, {"device": "attic"}], shard=0)
    assert (status, answer["accepted"], headers["Retry-After"]) == (503, 1, "1")


async def test_a_hand_over_loses_no_reading_and_keeps_the_states(site):
    await site.start(2)
    site.assign(["kitchen"], [])
    sent = 0

    async def send(count, shard):
        nonlocal sent
        for _ in range(count):
            answer = await site.post({"device": "kitchen", "readings": {"battery": sent}}, shard=shard)
            assert answer[0] == 202
            sent += 1

    await site.post({"device": "kitchen", "readings": {"smoke": True}})
    await send(5, 0)
    site.assign(["kitchen"], ["kitchen"], also={"kitchen": "s-1"})
    await eventually(lambda: site.device("kitchen", 1).states.values.get("smoke") == 1)
    assert not site.device("kitchen", 1).reason(now_ns(), 5 * SECOND)
    await send(5, 0)
    await send(5, 1)
    site.assign([], ["kitchen"])
    await send(5, 0)
    assert site.device("kitchen", 1).states.values["battery"] == sent - 1


async def test_a_drained_shard_answers_what_has_arrived_and_closes(site):
    await site.start()
    site.assign(["kitchen"])
    answers = await asyncio.gather(*(site.post({"device": "kitchen"}) for _ in range(10)), site.shards[0].drain(),
                                   return_exceptions=True)  # fmt: skip
    statuses = [answer[0] for answer in answers if isinstance(answer, tuple)]
    assert set(statuses) <= {202, 503}
    with pytest.raises(aiohttp.ClientConnectionError):
        await site.post({"device": "kitchen"})


async def test_a_sensor_without_a_port_says_what_to_declare():
    shard, tasks = SensorShard(sources={"push": open_source}), Tasks()
    options = ShardOptions("s-0", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
    await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
    settings = build_sensor_settings(SensorFleetSpec())
    shard.apply(Assignment(fleet="f", shard="s-0", epoch=1, sensor=settings, devices=[declared("kitchen")]))
    device = shard.fleet.owned_devices["kitchen"]
    assert "spec.listen.http is missing" in device.reason(now_ns() + MINUTE, 5 * SECOND)
    await shard.stop()
    await tasks.stop()
