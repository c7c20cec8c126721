"""Tenants with a hub each, one operator: fleets choose theirs, and nobody sees anything of the other's."""

import asyncio
import base64
import json

import grpc
import pytest
from harness.cluster.cluster import Json, node_ports, until
from harness.cluster.site import ADMIN_SECRET, RELEASE, SITE, SYSTEM, VOLUME, Site
from harness.devices import TextDevice
from harness.records.witness import Witness

from embereye.process.http.bearer import bearer
from embereye.v1.alarms_pb2 import HistoryRequest, ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

FLEETS = {"hall": "", "annex": "north"}  # fleet → the hub that it names
ZONE = "aisle"  # of both: zones of one namespace share names, not hubs
OPTIONS = (
    f"hub.persistence.storageClass={VOLUME}",
    "hubs.north.hub.persistence.enabled=false",
    "hubs.vault.namespaces={vault}",
    "hubs.vault.hub.persistence.enabled=false",
    "runAs=1000680000",  # a user as OpenShift chooses, unknown to the image
)


def fleet(name: str, hub: str, expose: Json) -> Json:
    spec: Json = {"sensors": [{"id": f"{name}-1", "zone": ZONE}], "autoscaling": {"mode": "none"}, "expose": expose}
    metadata = {"name": name, "namespace": SITE}
    return {
        "apiVersion": "embereye.dev/v1beta1", "kind": "SensorFleet", "metadata": metadata, "spec": {**spec, "hub": hub}
    }  # fmt: skip


async def address(site: Site, hub: str) -> str:
    service = await site.cluster.existing("service", hub, SYSTEM, 30)
    return f"{site.entrance}:{node_ports(service)['grpc']}"


async def seen(at: str, token: str) -> tuple[set[str], int]:
    """Devices and events that a token is shown at a hub."""
    async with grpc.aio.insecure_channel(at) as link:
        stub, shown = AlarmsStub(link), bearer(token)
        zones = (await stub.Zones(ZonesRequest(), metadata=shown, timeout=10)).zones
        history = await stub.History(HistoryRequest(), metadata=shown, timeout=10)
    named = {item.device for zone in zones for item in zone.contributions}
    return named | {fault.device for zone in zones for fault in zone.faults}, len(history.events)


async def test_fleets_report_to_the_hub_that_they_name_and_tokens_are_good_at_one(site: Site) -> None:
    with site.diary.step("two tenants with a hub each") as step:
        await site.install(*OPTIONS)
        # It has its own admin, and not the one that the release's own hub was given.
        stored = await site.cluster.existing("secret", f"{RELEASE}-north-{ADMIN_SECRET}", SYSTEM, 30)
        tokens = {"hall": site.token, "annex": base64.b64decode(stored["data"]["token"]).decode()}
        at = {"hall": await address(site, f"{RELEASE}-hub"), "annex": await address(site, f"{RELEASE}-north-hub")}
        witnesses = {name: Witness(at[name], site.diary, f"witness-{name}", tokens[name]) for name in FLEETS}
        await site.apply_fleets(*(fleet(name, hub, site.node_ports) for name, hub in FLEETS.items()))
        devices = {}
        for name in FLEETS:
            site.start(witnesses[name].run(), f"witness-{name}")
            await site.condition("sf", name, 120, Ready=True, Exposed=True)
            host, _, port = (await site.exposed("sf", name))["tcp"].rpartition(":")
            devices[name] = TextDevice(f"{name}-1", ZONE, host, int(port))
            site.start(devices[name].run(), f"text-{name}")
            await site.condition("sf", name, 60, Covered=True, Degraded=False)
            await until(witnesses[name].connected, bool, f"the witness of {name} is connected", 30)
        await devices["annex"].fire(ADC1=3600)
        await witnesses["annex"].alarmed(ZONE, 10)
        await asyncio.sleep(2)
        assert not witnesses["hall"].alarms(ZONE)
        await devices["hall"].fire(ADC1=3600)
        await witnesses["hall"].alarmed(ZONE, 10)
        for name in FLEETS:
            shown, events = await seen(at[name], tokens[name])
            assert shown == {f"{name}-1"}
            assert events
            other = next(token for owner, token in tokens.items() if owner != name)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await seen(at[name], other)
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        step.add_remark("each sees its own device alone")


async def test_a_fleet_with_the_hub_of_another_tenant_waits_until_it_names_its_hub(
    site: Site,
) -> None:
    with site.diary.step("a fleet names another tenant's hub"):
        await site.apply_fleets(fleet("shed", "vault", site.node_ports))
        await site.condition("sf", "shed", 60, Degraded=True, Progressing=False)
        (degraded,) = [
            entry for entry in (await site.fleet("sf", "shed"))["status"]["conditions"] if entry["type"] == "Degraded"
        ]
        assert degraded["reason"] == "HubUnknown"
        assert f'no hub "vault" is for namespace {SITE}; there are north' in degraded["message"]
        assert await site.pods(fleet="shed") == []
        patch = json.dumps({"spec": {"hub": "north"}})
        await site.cluster.kubectl("patch", "sf/shed", "--namespace", SITE, "--type=merge", "--patch", patch)
        await site.condition("sf", "shed", 90, Ready=True, Degraded=False)
        site.check_tasks()
