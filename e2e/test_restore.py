"""A FleetBackup's backup, restored in another namespace: it has the same history, and the same tokens are valid.

Its Job copies the running hub to an S3 server on this machine. A second release restores next to the hub and uploads
nothing, as in the archive's guide. Slow: `make e2e ARGS="-m slow"` runs it.
"""

import asyncio
import base64
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from harness.cluster.cluster import Json, node_ports, until
from harness.cluster.site import CHART, RELEASE, SITE, SYSTEM, VOLUME, Site
from harness.devices import TextDevice
from harness.machine.people import reset_zones
from harness.records.witness import Witness

from embereye.process.addresses import free_ports
from embereye.process.http.bearer import bearer
from embereye.v1.alarms_pb2 import AlarmEvent, HistoryRequest, ZoneState
from embereye.v1.alarms_pb2_grpc import AlarmsStub

pytest.importorskip("moto", reason="the S3 server of the tests is not installed")
boto3 = pytest.importorskip("boto3", reason="the archive's library is not installed")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420), pytest.mark.slow]

DRILL = "drill"  # the namespace of the second release
SECRET = "fire-evidence"
FOLDER = "/etc/embereye/archive/credentials"
VOLUMES = (f"hub.persistence.storageClass={VOLUME}",)
ZONE = "aisle"
BACKUP = "minutely"
FLEET = {
    "apiVersion": "embereye.dev/v1beta1", "kind": "SensorFleet", "metadata": {"name": "hall", "namespace": SITE},
}  # fmt: skip


class S3:
    """A bucket of moto's server at an address that pods reach."""

    def __init__(self, host: str) -> None:
        from moto.server import ThreadedMotoServer

        (port,) = free_ports(1)
        self.url = f"http://{host}:{port}"
        self.bucket = "evidence"
        self._server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)

    def start(self) -> None:
        self._server.start()
        self._client: Any = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="key", aws_secret_access_key="secret",
            region_name="us-east-1",
        )  # fmt: skip
        self._client.create_bucket(Bucket=self.bucket)

    def stop(self) -> None:
        self._server.stop()

    async def backups(self) -> list[str]:
        """The names of complete backups, oldest first."""
        listed = await asyncio.to_thread(self._client.list_objects_v2, Bucket=self.bucket, Prefix="site-1/backups/")
        return [entry["Key"] for entry in listed.get("Contents", ())]

    def fleet_backup(self, schedule: str, *, suspend: bool = False) -> Json:
        """A FleetBackup of the release's hub into it."""
        place = {"bucket": self.bucket, "prefix": "site-1", "endpoint": self.url, "credentialsSecret": {"name": SECRET}}
        return {
            "apiVersion": "embereye.dev/v1beta1", "kind": "FleetBackup",
            "metadata": {"name": BACKUP, "namespace": SYSTEM},
            "spec": {"schedule": schedule, "suspend": suspend, "destination": {"s3": place}},
        }  # fmt: skip

    @property
    def values(self) -> tuple[str, ...]:
        """The chart's values that name it."""
        return (
            f"hub.archive.config.bucket={self.bucket}", "hub.archive.config.prefix=site-1",
            "hub.archive.config.region=us-east-1", f"hub.archive.config.endpoint={self.url}",
            f"hub.archive.config.credentials={FOLDER}", f"hub.archive.credentials.existingSecret={SECRET}",
        )  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def s3(site: Site) -> AsyncIterator[S3]:
    served = S3(await site.cluster.neighbour())
    served.start()
    yield served
    served.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def drill(site: Site) -> AsyncIterator[str]:
    """The namespace of the second release, deleted at the end."""
    await site.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRILL}}, keys(DRILL))
    yield DRILL
    try:
        await site.cluster.helm("uninstall", RELEASE, "--namespace", DRILL, "--wait")
    finally:
        await site.cluster.kubectl("delete", "namespace", DRILL, "--timeout=120s", limit=130)


def keys(namespace: str) -> Json:
    """The Secret with the keys to the bucket."""
    data = {"access-key-id": b"key", "secret-access-key": b"secret"}
    return {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": namespace},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }  # fmt: skip


async def create_token(site: Site, name: str) -> str:
    """Create an operator's token at the console of the running hub."""
    url = f"{await site.console()}/v1/access/tokens"

    def post() -> str:
        request = urllib.request.Request(
            url, json.dumps({"name": name, "role": "operator"}).encode(),
            {"Authorization": f"Bearer {site.token}", "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["token"])

    return await asyncio.to_thread(post)


async def backup_status(site: Site) -> dict[str, str]:
    """The answer of the FleetBackup's condition, and the name of its newest backup."""
    backup = await site.cluster.get("fleetbackup", BACKUP, "--namespace", SYSTEM)
    status: Json = (backup or {}).get("status") or {}
    answers = {entry["type"]: str(entry["status"]) for entry in status.get("conditions", ())}
    return answers | {"name": str(status.get("lastBackup", {}).get("name", ""))}


async def history(address: str, token: str) -> list[AlarmEvent]:
    """All events of a hub, as the owner of `token` reads them."""
    async with grpc.aio.insecure_channel(address) as link:
        answer = await AlarmsStub(link).History(HistoryRequest(limit=1_000), metadata=bearer(token), timeout=10)
    return list(answer.events)


async def test_a_backup_restored_in_another_namespace_has_the_same_history_and_tokens(
    site: Site, s3: S3, drill: str
) -> None:
    with site.diary.step("a history") as step:
        await site.install(*VOLUMES)
        address = await site.hub()
        witness = Witness(address, site.diary, "witness", site.token)
        spec: Json = {
            "sensors": [{"id": "s-1", "zone": ZONE}], "autoscaling": {"mode": "none"}, "expose": site.node_ports
        }  # fmt: skip
        await site.apply_fleets({**FLEET, "spec": spec})
        site.start(witness.run(), "witness")
        await site.condition("sf", "hall", 120, Ready=True, Exposed=True)
        host, _, port = (await site.exposed("sf", "hall"))["tcp"].rpartition(":")
        device = TextDevice("s-1", ZONE, host, int(port))
        site.start(device.run(), "text")
        await site.condition("sf", "hall", 60, Covered=True)
        await until(witness.connected, bool, "the witness is connected", 30)
        await device.fire(ADC1=3600)
        await witness.alarmed(ZONE, 10)
        device.rest()
        await until(lambda: reset_zones(address, site.token), lambda zones: ZONE in zones, "the zone is reset", 60)
        guard = await create_token(site, "guard")
        step.add_remark(f"{len(await history(address, guard))} events")

    with site.diary.step("a backup by a FleetBackup") as step:
        await site.cluster.apply(keys(SYSTEM), s3.fleet_backup("* * * * *"))
        status = await until(
            lambda: backup_status(site), lambda now: now.get("Ready") == "True", "a backup is made", 180
        )
        await site.cluster.apply(s3.fleet_backup("* * * * *", suspend=True))
        stopped = await until(
            lambda: backup_status(site), lambda now: now.get("Ready") == "Unknown", "it is suspended", 30
        )
        step.add_remark(f"{status}, then {stopped}")
        jobs = ("jobs", "--namespace", SYSTEM, "--selector", "embereye.dev/backup")
        await until(
            lambda: site.cluster.items(*jobs),
            lambda started: not any(job["status"].get("active") for job in started),
            "no backup is being made", 60,
        )  # fmt: skip
        assert f"site-1/backups/{status['name']}.sqlite.gz" in await s3.backups()
        made = await s3.backups()

    with site.diary.step("restored in another namespace"):
        values = (*s3.values, "crds.enabled=false", "hub.persistence.enabled=false", "hub.service.type=NodePort",
                  f"hub.archive.restore={status['name']}", "hub.archive.restoreOnly=true")  # fmt: skip
        options = [argument for value in values for argument in ("--set", value)]
        await site.cluster.helm("install", RELEASE, str(CHART), "--namespace", drill, *options)
        ready = ("rollout", "status", f"deployment/{RELEASE}-hub", "--namespace", drill, "--timeout=120s")
        await site.cluster.kubectl(*ready, limit=130)
        service = await site.cluster.existing("service", f"{RELEASE}-hub", drill, 30)
        restored = f"{site.entrance}:{node_ports(service)['grpc']}"

        async def restored_history() -> list[AlarmEvent]:
            try:
                return await history(restored, guard)
            except grpc.aio.AioRpcError:
                return []

        copied = await until(restored_history, bool, "the restored hub accepts the token of a guard", 60)
        original = await history(address, guard)
        assert copied == original[: len(copied)]
        assert any(event.previous == ZoneState.ZONE_STATE_RESTORED for event in copied)
        with pytest.raises(grpc.aio.AioRpcError) as caught:  # the administrator's token is not in a backup
            await history(restored, site.token)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert set(await s3.backups()) - set(made) == set(), "the restored hub uploads nothing"
        site.check_tasks()
