"""Processes survive renewals of their certificates, and another authority, with open streams."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from embereye.client.client import Client
from embereye.process.grpc_server import channel
from embereye.process.identity.authority import PROPAGATION, Authority, utc_now
from embereye.process.tls.client import ClientTls
from embereye.v1.alarms_pb2 import AlarmEvent, SubscribeRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub

from .test_up import House, house, talking

LIFE = 30  # seconds
TLS = "  access: {open: true, tls: {}}\n"


@dataclass
class Watch:
    """The view of streams that stay open all the time."""

    running: House
    events: list[AlarmEvent] = field(default_factory=list)
    sent: int = 0

    @property
    def authority(self) -> Path:
        return self.running.data / "identity" / "authority"

    def identities(self) -> dict[str, bytes]:
        """Return the certificate of each process, by its folder."""
        folders = self.running.data.glob("identity/embereye.*")
        return {folder.name: (folder / "tls.crt").read_bytes() for folder in folders}

    async def renewed(self, before: dict[str, bytes]) -> dict[str, bytes]:
        """Wait until every process has another certificate than `before`, and had time to read it."""
        await self.running.until(lambda: not before.items() & self.identities().items(), 3 * LIFE)
        await asyncio.sleep(6)
        return self.identities()

    def replace_authority(self, files: Sequence[bytes]) -> None:
        """Replace the authority's certificates and keys."""
        for name, content in zip(("ca.crt", "ca.key"), files, strict=True):
            (self.authority / name).write_bytes(content)

    def counted(self) -> int:
        """Return the number of accepted readings of s-01, with repetitions."""
        ledger = self.running.devices()["s-01"]["ledger"]
        return int(ledger.get("analysed", 0)) + int(ledger.get("duplicate", 0))

    async def follow(self) -> None:
        async with channel(self.hub, token=self.token) as link:
            async for response in AlarmsStub(link).Subscribe(SubscribeRequest()):
                self.events.append(response)

    @property
    def hub(self) -> str:
        return str(self.running.endpoints["hub"])

    @property
    def token(self) -> str:
        return Path(self.running.endpoints["adminTokenFile"]).read_text().strip()


@contextlib.asynccontextmanager
async def sending(watch: Watch, client: Client) -> AsyncIterator[None]:
    async def send() -> None:
        while True:
            client.send("s-01", smoke_adc=280, flame_adc=1300, gas_adc=2)
            watch.sent += 1
            await asyncio.sleep(0.05)

    task = asyncio.ensure_future(send())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_renewals_and_another_authority_lose_nothing_on_open_streams(tmp_path: Path) -> None:
    async with house(tmp_path, "--certificate-life", f"{LIFE}s", shards=2, more=TLS) as running:
        watch = Watch(running)
        address = running.endpoints["fleets"]["default/sensors/hall"]["service"]["grpc"]
        async with Client(address, tls=ClientTls(watch.authority / "ca.crt")) as client, talking(running, "s-02"):
            covered = lambda: all(device["covered"] for device in running.devices().values())  # noqa: E731
            async with sending(watch, client):
                await running.until(covered)
                await asyncio.sleep(2)  # faults of devices that had not sent yet are cleared
                feed, began = asyncio.ensure_future(watch.follow()), time.time_ns()
                await _live_through_changes(watch)
                assert covered()
            assert await client.flush(20)
            await running.until(lambda: watch.counted() >= watch.sent, 10)  # shards report every second
            assert watch.counted() == watch.sent, "each reading once"
            assert not feed.done(), "the feed stayed open"
            assert not [event for event in watch.events if event.time_ns > began], "no fault was announced"
            feed.cancel()

            # A process that starts now never trusted the first authority, and all others talk to it.
            (shard,) = [pid for pid in running.pids("shard") if _runs(pid, "hall-sensors-0")]
            (hub,) = running.pids("hub")
            for process in (shard, hub):
                os.kill(process, signal.SIGKILL)
            await running.until(lambda: {shard, hub}.isdisjoint({*running.pids("shard"), *running.pids("hub")}))
            async with sending(watch, client):
                await running.until(covered, 60)
            client.send("s-01", smoke_adc=3900, flame_adc=1300, gas_adc=2)
            await running.until(lambda: running.zones()["hall"]["state"] == "ZONE_STATE_ALARM", 20)


async def _live_through_changes(watch: Watch) -> None:
    """Renew every certificate twice, then replace the authority."""
    certificates = watch.identities()
    assert len(certificates) == 4, "for operator, hub and two shards"
    for _ in range(2):
        certificates = await watch.renewed(certificates)
    # The new authority is trusted together with the first before it signs, some seconds from now; then alone.
    first = [(watch.authority / name).read_bytes() for name in ("ca.crt", "ca.key")]
    second = Authority.create(utc_now() - PROPAGATION + timedelta(seconds=12)).to_pem()
    both = [old + new for old, new in zip(first, second, strict=True)]
    watch.replace_authority(both)
    certificates = await watch.renewed(certificates)  # still from the first
    certificates = await watch.renewed(certificates)  # from the second
    watch.replace_authority(second)
    await watch.renewed(certificates)
    trusted = {path.read_bytes() for path in watch.running.data.glob("identity/embereye.*/ca.crt")}
    assert trusted == {second[0]}


def _runs(pid: int, shard: str) -> bool:
    return f"EMBEREYE_SHARD={shard}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
