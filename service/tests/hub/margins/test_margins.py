"""Margins from a shard through the hub to a person who asks why there was no alarm."""

import asyncio
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from harness.eventually import eventually
from prometheus_client import CollectorRegistry

from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.margins.parts import margin_parts
from embereye.hub.margins.store import MarginStore
from embereye.hub.roles import Principal, Role
from embereye.margins import Margin, Peak, measured
from embereye.process.grpc_server import GrpcServer
from embereye.process.http.server import bound_port, serve_http
from embereye.process.margins_call import Block, line_of
from embereye.process.tasks import beside
from embereye.shard.links import Links
from embereye.shard.margins import DEVICE_DAY_BYTES, SPARE_BYTES, Margins
from embereye.units import DAY, HOUR, MINUTE, SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device
from embereye.zone.profile import Profile

FLEET, TOKEN = "default/sensors/hall", "an-admins-token-of-forty-characters-or-so"


@dataclass
class Site:
    """A hub, and the margins of one shard."""

    base: str
    session: aiohttp.ClientSession
    margins: Margins
    links: Links
    registry: CollectorRegistry
    store: MarginStore
    hub: Hub

    async def quiet(self, device: str = "s-1", at_ns: int = 0) -> tuple[int, dict[str, Any]]:
        """The answer to the question why there was no alarm."""
        async with self.session.get(f"{self.base}/v1/devices/{FLEET}/{device}/quiet?at={at_ns}") as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A hub with two sensors, and their shard."""
    threads = StoreThreads(tmp_path)
    hub = Hub(threads, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    devices = [Device(id=f"s-{number}", zone="hall") for number in (1, 2)]
    store, registry = MarginStore(tmp_path, retention_ns=90 * DAY), CollectorRegistry()
    parts = margin_parts(hub, store)
    for collector in parts.collectors:
        registry.register(collector)
    control = GrpcServer(list(parts.services), control=True)
    port = control.listen("127.0.0.1:0")
    await control.start()
    margins, links = Margins(lambda: (FLEET, "hall-0"), block_seconds=0.1), Links(f"127.0.0.1:{port}")
    session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"})
    async with session, beside(hub.run(), name="hub"):
        await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=1, deadline_ns=5 * SECOND, devices=devices))
        runner = await serve_http(Api(hub, addons=[parts]).app(registry), "127.0.0.1", 0)
        yield Site(f"http://127.0.0.1:{bound_port(runner)}", session, margins, links, registry, store, hub)
        await runner.cleanup()
        await control.stop(0.2)
        await hub.committer.flush(10)
    await parts.close()
    await threads.close()


def minute_ago() -> int:
    """The start of a minute that is over."""
    now_ns = time.time_ns()
    return now_ns - now_ns % MINUTE - 5 * MINUTE


def margin(from_ns: int, celsius: float, device: str = "s-1") -> Margin:
    return {
        "device": device, "fromNs": from_ns, "untilNs": from_ns + 5 * SECOND, "analysed": 20, "shed": {"overflow": 2},
        "peaks": [
            {
                "kind": "heat", "level": "clear", "score": 0.1,
                "nearest": measured("temperature.max", celsius, 90, "°C"),
                "terms": [measured("temperature.max", celsius, 60, "°C")],
            }
        ],
    }  # fmt: skip


async def send(site: Site, *margins: Margin) -> None:
    """Have the hub store `margins`."""
    for each in margins:
        site.margins.add(each)
    async with beside(site.margins.run(site.links), name="margins"):
        await eventually(lambda: site.margins.sent_bytes)


async def test_a_minutes_margins_reach_the_person_who_asks(site: Site) -> None:
    at = minute_ago()
    others = [margin(at - MINUTE, 80), margin(at + MINUTE, 80), margin(at, 85, "s-2")]
    await send(site, margin(at, 22), margin(at + 5 * SECOND, 61.2), *others)
    status, body = await site.quiet(at_ns=at + 42 * SECOND)
    assert (status, body["device"], body["zone"], body["fleet"]) == (200, "s-1", "hall", FLEET)
    assert (int(body["fromNs"]), int(body["untilNs"])) == (at, at + MINUTE)
    (nearest,) = body["nearest"]
    assert nearest["words"] == "heat: temperature.max 61.2 °C of 90 °C: 28.8 K short, 68 % of the limit"
    assert [each["analysed"] for each in body["margins"]] == [20, 20]
    assert body["margins"][1]["peaks"][0]["nearest"] == {
        "name": "temperature.max", "value": 61.2, "threshold": 90.0, "unit": "°C",
    }  # fmt: skip
    assert body["suppressed"] == [{"by": "shed", "why": "4 frames or readings not analysed: overflow"}]
    assert "missing" not in body
    assert site.registry.get_sample_value("embereye_hub_margins_bytes") == site.margins.sent_bytes > 0


async def test_a_zones_profile_at_that_time_is_named(site: Site) -> None:
    at = minute_ago()
    site.hub.zones.profile_of = lambda key: Profile("welding") if key == ("default", "hall") else None
    await send(site, margin(at, 22))
    site.hub.zones.profile_of = lambda key: None
    why = "the zone had the profile welding: signs that it expects are a pre-alarm at most"
    assert {"by": "profile", "why": why} in (await site.quiet(at_ns=at))[1]["suppressed"]


async def test_a_silence_of_that_time_is_named_after_it_ended(site: Site) -> None:
    at = (time.time_ns() // MINUTE) * MINUTE
    admin = Principal("kim", Role.ADMIN, "")
    event = await site.hub.silences.begin(admin, "default", "hall", reason="welding", minutes=30)
    await site.hub.silences.end(admin, event.silence.id)
    answers = [(await site.quiet(at_ns=each))[1] for each in (at, at + MINUTE)]
    silences = [item["why"] for answer in answers for item in answer["suppressed"] if item["by"] == "silence"]
    assert silences[0] == "zone hall is silenced for 30 min by kim: welding"
    assert any(event["type"] == "TYPE_SILENCE" for answer in answers for event in answer["events"])


async def test_an_empty_minute_says_why_it_is_empty(site: Site) -> None:
    at = minute_ago()
    _, body = await site.quiet(at_ns=at)
    assert (body["margins"], body["missing"]) == ([], "results of this minute were deleted, or none were stored yet")
    _, body = await site.quiet(at_ns=time.time_ns())
    assert body["missing"] == "this minute is not complete yet: results arrive up to a minute later"
    await send(site, margin(at - 2 * MINUTE, 22))
    _, body = await site.quiet(at_ns=at)
    assert body["missing"].startswith("nothing of this device arrived in this minute")
    assert (await site.quiet("s-3"))[0] == 404


async def test_a_shard_with_a_wrong_clock_is_kept_at_the_hubs_time(site: Site) -> None:
    at = time.time_ns() - 10 * MINUTE
    each = margin(at + HOUR, 50)
    content = Margins(lambda: (FLEET, "hall-0"))
    content.add(each)
    content.end_block()
    block = content.next_block()
    assert block
    behind = Block(block.fleet, block.shard, block.from_ns, block.until_ns, time.time_ns() + HOUR, block.content)
    await site.store.add(behind, time.time_ns())
    (stored,) = await site.store.find(FLEET, "s-1", at - MINUTE, at + MINUTE)
    assert abs(stored["fromNs"] - at) < 30 * SECOND


async def test_the_command_prints_sentences_and_a_table(site: Site) -> None:
    at = minute_ago()
    await send(site, margin(at, 22), margin(at + 5 * SECOND, 61.2))
    code, out = await run_command(site, "s-1", "--at", f"{at // SECOND}")
    assert code == 2  # no time that people write
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at // SECOND))
    code, out = await run_command(site, "s-1", "--at", when, "--terms")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(f"s-1 in zone hall of {FLEET}, ")
    assert lines[1].startswith("  heat: temperature.max 61.2 °C of 90 °C: 28.8 K short, 68 % of the limit, up to ")
    assert "  shed: 4 frames or readings not analysed: overflow" in lines
    assert lines[-1] == "      heat   temperature.max 61.2 °C of 60 °C"
    assert "20 analysed  temperature.max 61.2 °C of 90 °C" in lines[-2]


async def test_the_command_says_that_nothing_was_kept(site: Site) -> None:
    code, out = await run_command(site, "s-1", "--at", "2h")
    assert code == 1
    assert "  nothing stored for this minute: results of this minute were deleted, or none were stored yet" in out
    code, out = await run_command(site, "s-9")
    assert (code, out) == (5, "")


async def run_command(site: Site, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "explain", "quiet", *arguments, "--console", site.base,
        env={"EMBEREYE_TOKEN": TOKEN}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode()


# The limits


def day_of(margins: Margins, peaks: Callable[[], Peak], hours: int = 1) -> int:
    """Bytes a day of one device that has such a peak all the time."""
    at, size = minute_ago(), 0
    for step in range(hours * 720):
        margins.add({**margin(at + step * 5 * SECOND, 22), "peaks": [peaks()]})
        if step % 6 == 5:
            margins.end_block()
            size += len(block.content) if (block := margins.next_block()) else 0
    return size * 24 // hours


async def test_a_devices_day_never_exceeds_its_share() -> None:
    random = Random(1)

    def flickering() -> Peak:
        terms = [measured(f"flame.{name}", random.random(), random.random(), "1") for name in range(60)]
        return {"kind": "flame", "level": "clear", "score": random.random(), "terms": terms, "nearest": terms[0]}

    margins = Margins(lambda: (FLEET, "hall-0"))
    size = day_of(margins, flickering)
    assert margins.left_out == 0  # without its terms, a margin is small
    assert DEVICE_DAY_BYTES // 2 < size <= DEVICE_DAY_BYTES + 24 * SPARE_BYTES


async def test_a_usual_devices_day_takes_far_less() -> None:
    random = Random(2)

    def heat() -> Peak:
        celsius = measured("temperature.max", random.gauss(24, 1), 60, "°C")
        rise = measured("temperature.rise", random.gauss(0, 1), 20, "°C/min")
        return {"kind": "heat", "level": "clear", "score": 0.0, "terms": [celsius, rise], "nearest": celsius}

    margins = Margins(lambda: (FLEET, "hall-0"))
    assert day_of(margins, heat) < 1_500_000
    assert margins.left_out == 0


async def test_blocks_wait_for_the_hub_and_the_oldest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("embereye.shard.margins.PENDING_BYTES", 200)
    margins = Margins(lambda: (FLEET, "hall-0"), block_seconds=0.01)
    at = minute_ago()
    async with beside(margins.run(Links("127.0.0.1:1")), name="margins"):
        for step in range(10):
            margins.add(margin(at + step * 5 * SECOND, 22))
            margins.end_block()
    assert margins.left_out > 0
    assert margins._ready[-1].block.from_ns == at + 45 * SECOND
    assert margins._ready_bytes <= 400


async def test_a_shard_that_ends_does_not_wait_for_an_absent_hub() -> None:
    margins = Margins(lambda: (FLEET, "hall-0"))
    margins.add(margin(minute_ago(), 22))
    await margins.drain(Links("127.0.0.1:1"), 0.2)
    assert margins.sent_bytes == 0
    assert margins.next_block()


async def test_the_store_keeps_the_newest_within_its_size_and_age(tmp_path: Path) -> None:
    store, at = MarginStore(tmp_path, capacity=1_000, retention_ns=DAY), minute_ago()
    for number in range(30):
        from_ns = at + number * SECOND
        block = Block(FLEET, "hall-0", from_ns, from_ns + SECOND, at, bytes([number]) * 100)
        await store.add(block, at)
    assert store.bytes <= 1_000
    assert store.oldest_ns > at
    await store.add(Block(FLEET, "hall-0", at + 2 * DAY, at + 2 * DAY, at + 2 * DAY, b"x"), at + 2 * DAY)
    await store._run(lambda: store._expire(at + 2 * DAY))
    assert store.bytes == 1
    await store.close()


async def test_a_damaged_file_is_replaced_and_a_restart_finds_the_rest(tmp_path: Path) -> None:
    (tmp_path / "margins.sqlite").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    at = minute_ago()
    store = MarginStore(tmp_path, retention_ns=DAY)
    content = zlib.compress(line_of(margin(at, 22)))
    await store.add(Block(FLEET, "hall-0", at, at + 5 * SECOND, at, content), at)
    await store.close()
    again = MarginStore(tmp_path, retention_ns=DAY)
    assert [each["fromNs"] for each in await again.find(FLEET, "s-1", at, at + MINUTE)] == [at]
    await again.close()


async def test_a_file_that_is_damaged_while_it_is_open_is_replaced(tmp_path: Path) -> None:
    at = minute_ago()
    store = MarginStore(tmp_path, retention_ns=DAY)

    def block(n: int) -> Block:
        return Block(FLEET, f"hall-{n}", at, at + 5 * SECOND, at, Random(n).randbytes(40_000))

    for n in range(50):
        await store.add(block(n), at)
    await store.close()
    path = tmp_path / "margins.sqlite"
    size = path.stat().st_size
    with path.open("r+b") as file:  # all pages but the first, which has the schema
        file.seek(8_192)
        file.write(Random(7).randbytes(size - 8_192))
    store = MarginStore(tmp_path, retention_ns=DAY)
    await store.add(Block(FLEET, "hall-0", at, at + 5 * SECOND, at, zlib.compress(line_of(margin(at, 22)))), at)
    assert [each["fromNs"] for each in await store.find(FLEET, "s-1", at, at + MINUTE)] == [at]
    assert not store.failing
    await store.close()


NEAR_THE_END = b'{"fleet":"f","shard":"s","from_ns":%d,"until_ns":%d,"sent_ns":0}\n' % (2**62, 2**62)


@pytest.mark.parametrize(
    "data",
    [b"[" * 100_000, NEAR_THE_END, b"", b"{}\n", b"[1]\n", b'{"fleet":"f","shard":"s","from_ns":true}\n', b"\xff\n"],
)
def test_an_invalid_block_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any wording
        Block.load(data)
