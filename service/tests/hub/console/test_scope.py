"""People and programs that are limited to zones or fleets see and change nothing else, whichever route they ask."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from embereye.hub.candidates.keeper import Candidates
from embereye.hub.candidates.parts import candidate_parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.access.origin import SAFE_METHODS
from embereye.hub.http.api import Api
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.live.parts import live_parts
from embereye.hub.margins.parts import margin_parts
from embereye.hub.margins.store import MarginStore
from embereye.hub.plans.images import PlanImage
from embereye.hub.roles import Principal, Role, read_scope
from embereye.hub.tables.overlays import Overlay
from embereye.hub.tables.plans import Place
from embereye.process.http.server import bound_port, serve_http
from embereye.units import DAY, SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

from .house import CAMERAS, SENSORS, TOKEN, House, picture

ADMIN = Principal("admin", Role.ADMIN, "admin")
NAMESPACE, OWN, OTHER = "default", "kitchen", "stairs"
# Devices by zone, as House declares them.
CAMERA = {OWN: "cam-0", OTHER: "cam-2"}
SENSOR = {OWN: "s-00000", OTHER: "s-00002"}
ANNEX, EMPTY, DELETED = "default/sensors/annex", "default/sensors/empty", "default/sensors/deleted"


@dataclass
class Site:
    """A house with a fire in two zones, and a guard's token for one of them."""

    house: House
    api: Api
    token: str
    alarms: dict[str, str]  # by zone
    clips: dict[str, str]  # digest of a clip, by zone
    silences: dict[str, str]  # by zone

    def path(self, route: Route, zone: str) -> str:
        """Return a path of `route` that names things of `zone`."""
        is_camera = any(word in route.path for word in ("snapshot", "live", "overlays"))
        values = {
            "alarm": self.alarms[zone], "silence": self.silences[zone], "namespace": NAMESPACE, "zone": zone,
            "device": (CAMERA if is_camera or "/alarms/" in route.path else SENSOR)[zone], "form": "mkv",
            "fleet": "yard" if is_camera else "hall", "action": "acknowledge",
            "kind": "4" if "/alarms/" in route.path else "cameras" if is_camera else "sensors",
            "name": self.clips[zone] if "/clips/" in route.path else "floor",
        }  # fmt: skip
        return re.sub(r"\{(\w+)\}", lambda part: values.get(part[1], "x"), route.template)

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Ask as the guard; return the status and the answer as text."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as guard,
            guard.request(method, self.house.base + path, json=body) as response,
        ):
            return response.status, (await response.read()).decode("utf-8", "replace")

    async def limit_to(self, *patterns: str) -> None:
        """Ask as a guard with another token from now on."""
        access = self.house.hub.access
        if any(token.name == "limited" for token in access.tokens()):
            await access.revoke(ADMIN, "limited")
        self.token = await access.create_token(ADMIN, "limited", Role.OPERATOR, read_scope(patterns))

    async def names(self, path: str, kind: str, key: str) -> set[str]:
        """The names in a list, as the guard sees it."""
        return {entry[key] for entry in json.loads((await self.ask("GET", path))[1])[kind]}

    def secrets_of(self, zone: str) -> set[str]:
        """Everything that an answer about `zone` would contain."""
        return {CAMERA[zone], SENSOR[zone], f'"{zone}"', self.alarms[zone], self.clips[zone], self.silences[zone]}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    store, clips = StoreThreads(tmp_path), ClipStore(tmp_path / "clips")
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    await clips.open()
    hub.access.set_admin_token(TOKEN)
    running = asyncio.ensure_future(hub.run())
    margins = MarginStore(tmp_path, retention_ns=DAY)
    api = Api(
        hub, clips, addons=[live_parts(hub), margin_parts(hub, margins), candidate_parts(hub, Candidates(hub), clips)]
    )
    runner = await serve_http(api.app(CollectorRegistry()), "127.0.0.1", 0)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        house = House(hub, clips, f"http://127.0.0.1:{bound_port(runner)}", session, margins, "")
        await house.furnish()
        alarms = {zone: await house.burn_before(CAMERA[zone], zone) for zone in (OWN, OTHER)}
        stored = {zone: await house.clips.of_episodes([house.episodes[CAMERA[zone]]]) for zone in (OWN, OTHER)}
        for zone in (OWN, OTHER):
            await hub.silences.begin(ADMIN, NAMESPACE, zone, reason="welding", minutes=60, device="", who="")
            await hub.overlays.store(ADMIN, (CAMERAS, CAMERA[zone]), Overlay(SENSORS, SENSOR[zone], 0.5, 0.5, 0.5, 0.5))
        await hub.plans.store(ADMIN, "floor", PlanImage(data=picture(0), media="image/jpeg", width=320, height=240))
        for zone in (OWN, OTHER):
            await hub.plans.place(ADMIN, "floor", (CAMERAS, CAMERA[zone]), Place(0.5, 0.5))
        token = await hub.access.create_token(ADMIN, "guard", Role.OPERATOR, read_scope([f"{NAMESPACE}/{OWN}"]))
        silences = {silence.zone: silence.id for silence in hub.silences.all(0)}
        yield Site(house, api, token, alarms, {zone: clips_[0].sha256 for zone, clips_ in stored.items()}, silences)
    await runner.cleanup()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await clips.close()
    await margins.close()
    await store.close()


def body_of(route: Route) -> object:
    if route.method in SAFE_METHODS:
        return None
    share = dict.fromkeys(("x", "y", "scale", "opacity"), 0.5)
    return {"reason": "steam", "minutes": 5, "fleet": SENSORS, "sensor": SENSOR[OTHER], **share}


def others_of(hub: Hub) -> dict[str, bytes]:
    """All that people can change of other zones."""
    zones = {zone.name: zone for zone in hub.zones.messages() if zone.name != OWN}
    for zone in zones.values():
        for field in ("covered", "faults"):  # devices report only once here
            zone.ClearField(field)
    return {name: zone.SerializeToString() for name, zone in zones.items()}


async def declare(site: Site, fleet: str, *devices: Device, epoch: int = 1) -> None:
    roster = FleetRoster(fleet=fleet, epoch=epoch, deadline_ns=60 * SECOND, devices=devices)
    await site.house.hub.coverage.set_roster(roster)


async def ask_every_route(site: Site, zone: str) -> None:
    """Ask every route for `zone`; no answer may show anything of it."""
    asked = 0
    for route in site.api.routes():
        if route.role is None or route.path == "/v1/access/logout":
            continue
        path = site.path(route, zone)
        for query in ("", "?order=urgent&limit=50", f"?zone={NAMESPACE}/{zone}"):
            status, text = await site.ask(route.method, path + query, body_of(route))
            asked += 1
            if not route.scoped:
                assert status == 403, (route.method, path, status, text[:200])
            if status < 400:
                shown = {secret for secret in site.secrets_of(zone) if secret in text}
                assert shown == set(), (route.method, path, query, text[:2000])
    assert asked > 100


async def test_no_route_shows_or_changes_another_zone(site: Site) -> None:
    hub = site.house.hub
    others = others_of(hub)
    await ask_every_route(site, OTHER)
    assert others_of(hub) == others
    assert {silence.zone for silence in hub.silences.all(0)} == {OWN, OTHER}
    assert hub.false_alarms.find(site.alarms[OTHER]) is None
    assert len(hub.overlays.all()) == 2


async def test_every_route_for_zones_works_for_the_own_zone(site: Site) -> None:
    for route in site.api.routes():
        if not route.scoped or route.method not in SAFE_METHODS or route.path.endswith(("/live", "/ws", ".mjpg")):
            continue
        status, text = await site.ask("GET", site.path(route, OWN))
        assert status == 200, (route.path, status, text[:300])
    status, text = await site.ask("GET", "/v1/zones")
    (zone,) = json.loads(text)["zones"]
    assert (zone["name"], json.loads(text)["declared"]) == (OWN, zone["declared"])
    status, text = await site.ask("POST", f"/v1/zones/{NAMESPACE}/{OWN}/acknowledge", {"note": "I go"})
    assert (status, json.loads(text)["who"]) == (200, "guard")
    status, text = await site.ask("GET", "/v1/access/me")
    assert json.loads(text) == {"name": "guard", "role": "operator", "zones": [f"{NAMESPACE}/{OWN}"]}


async def test_no_route_shows_or_changes_a_zone_without_a_device_of_the_own_fleet(site: Site) -> None:
    await declare(site, ANNEX, Device(id="annex-1", zone=OWN))
    await site.limit_to(ANNEX)
    await ask_every_route(site, OTHER)
    assert {silence.zone for silence in site.house.hub.silences.all(0)} == {OWN, OTHER}
    assert len(site.house.hub.overlays.all()) == 2


async def test_fleets_without_devices_show_nothing_on_any_route(site: Site) -> None:
    await declare(site, EMPTY)
    await declare(site, DELETED, Device(id="gone", zone=OWN))
    await site.house.hub.coverage.retain([SENSORS, CAMERAS, EMPTY])
    await site.limit_to(EMPTY, DELETED, "default/sensors/unknown", "*/cameras/none-*")
    await ask_every_route(site, OTHER)
    assert await site.names("/v1/zones", "zones", "name") == set()
    assert await site.names("/v1/devices", "devices", "id") == set()
    assert await site.names("/v1/history", "events", "zone") == set()
    assert (await site.ask("POST", f"/v1/zones/{NAMESPACE}/{OWN}/acknowledge", {}))[0] == 403


async def test_a_fleet_shows_its_devices_and_the_alarms_of_their_zones(site: Site) -> None:
    await declare(site, ANNEX, Device(id="annex-1", zone=OWN))
    await site.limit_to(ANNEX)
    assert await site.names("/v1/zones", "zones", "name") == {OWN}
    assert await site.names("/v1/devices", "devices", "id") == {"annex-1"}
    assert await site.names("/v1/alarms", "alarms", "zone") == {OWN}
    assert await site.names("/v1/history", "events", "zone") == {OWN}
    for path in (f"/v1/clips/{site.clips[OWN]}.mkv", f"/v1/alarms/{site.alarms[OWN]}/{CAMERA[OWN]}/4.jpg"):
        assert (await site.ask("GET", path))[0] == 200, path
    # The devices of other fleets in that zone are not shown.
    for path in (f"/v1/devices/{SENSORS}/{SENSOR[OWN]}", f"/v1/devices/{CAMERAS}/{CAMERA[OWN]}/snapshot.jpg",
                 f"/v1/devices/{CAMERAS}/{CAMERA[OWN]}/live", f"/v1/snapshot/{CAMERA[OWN]}.jpg"):  # fmt: skip
        assert (await site.ask("GET", path))[0] == 404, path
    assert await site.names("/v1/plans", "plans", "name") == set()
    assert await site.names("/v1/overlays", "overlays", "sensor") == set()
    status, text = await site.ask("POST", f"/v1/zones/{NAMESPACE}/{OWN}/acknowledge", {})
    assert (status, json.loads(text)["who"]) == (200, "limited")


async def test_a_fleet_shows_pictures_of_its_devices_only(site: Site) -> None:
    await site.limit_to(CAMERAS)
    assert await site.names("/v1/devices", "devices", "id") == {"cam-0", "cam-1", "cam-2"}
    assert (await site.ask("GET", f"/v1/devices/{CAMERAS}/cam-0/snapshot.jpg"))[0] == 200
    assert (await site.ask("GET", f"/v1/devices/{SENSORS}/s-00000/thermal"))[0] == 404
    assert await site.names("/v1/zones", "zones", "name") == {"kitchen", "hall", "stairs"}


async def test_a_scope_follows_its_fleet_through_each_roster(site: Site) -> None:
    await declare(site, ANNEX, Device(id="annex-1", zone=OWN))
    await site.limit_to(ANNEX, "default/hall")
    assert await site.names("/v1/zones", "zones", "name") == {OWN, "hall"}
    base, headers, silences = site.house.base, {"Authorization": f"Bearer {site.token}"}, site.house.hub.silences
    events = list[tuple[str, str]]()
    async with (
        aiohttp.ClientSession(headers=headers) as guard,
        guard.ws_connect(f"{base}/v1/alarms/ws") as feed,
    ):
        for epoch, (zone, reason) in enumerate([(OWN, "first"), (OTHER, "second"), ("hall", "last")], 2):
            devices = [] if zone == "hall" else [Device(id="annex-1", zone=zone)]
            await declare(site, ANNEX, *devices, epoch=epoch)
            for each in (OWN, OTHER, "hall"):
                await silences.begin(ADMIN, NAMESPACE, each, reason=reason, minutes=5, device="", who="")
            while ("hall", reason) not in events:
                event = json.loads((await asyncio.wait_for(feed.receive(), 60)).data)
                events.append((event["zone"], event.get("silence", {}).get("reason", "")))
    assert {each for each in events if each[1]} == {
        (OWN, "first"), ("hall", "first"), (OTHER, "second"), ("hall", "second"), ("hall", "last"),
    }  # fmt: skip
    await site.house.hub.coverage.retain([SENSORS, CAMERAS])
    assert await site.names("/v1/zones", "zones", "name") == {"hall"}


async def test_a_link_of_a_fleet_follows_its_roster_too(site: Site) -> None:
    await declare(site, ANNEX, Device(id="annex-1", zone=OWN))
    await site.limit_to(ANNEX)
    code = json.loads((await site.ask("POST", "/v1/access/links", {}))[1])["path"].partition("#")[2]
    await declare(site, ANNEX, Device(id="annex-1", zone=OTHER), epoch=2)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as window:
        async with window.post(f"{site.house.base}/v1/session", json={"code": code}) as response:
            assert (await response.json())["zones"] == [ANNEX]
        async with window.get(f"{site.house.base}/v1/zones") as response:
            assert [zone["name"] for zone in (await response.json())["zones"]] == [OTHER]


async def test_lists_are_paged_within_the_own_zones(site: Site) -> None:
    listed, after = list[str](), ""
    for _ in range(20):
        body = json.loads((await site.ask("GET", f"/v1/devices?limit=1&after={after}"))[1])
        listed += [device["id"] for device in body["devices"]]
        if not (after := body.get("next", "")):
            break
    assert sorted(listed) == ["cam-0", "s-00000", "s-00003", "s-00006"]
    body = json.loads((await site.ask("GET", "/v1/alarms?limit=1"))[1])
    assert [alarm["alarm"] for alarm in body["alarms"]] == [site.alarms[OWN]]


async def test_a_feed_has_only_the_events_of_the_own_zones(site: Site) -> None:
    base, headers = site.house.base, {"Authorization": f"Bearer {site.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as guard,
        guard.ws_connect(f"{base}/v1/alarms/ws?cursor=0") as feed,
    ):
        await feed.send_json({"select": {"zones": [OTHER, OWN]}})
        await site.house.hub.silences.begin(ADMIN, NAMESPACE, OTHER, reason="x", minutes=5, device="", who="")
        await site.house.hub.silences.begin(ADMIN, NAMESPACE, OWN, reason="the last", minutes=5, device="", who="")
        zones = set[str]()
        while True:
            event = json.loads((await asyncio.wait_for(feed.receive(), 60)).data)
            zones.add(event.get("zone", OWN))
            if event.get("silence", {}).get("reason") == "the last":
                break
    assert zones == {OWN}


async def test_links_and_their_sessions_have_the_same_zones(site: Site) -> None:
    status, text = await site.ask("POST", "/v1/access/links", {})
    assert status == 201
    code = json.loads(text)["path"].partition("#")[2]
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as window:
        async with window.post(f"{site.house.base}/v1/session", json={"code": code}) as response:
            assert (await response.json())["zones"] == [f"{NAMESPACE}/{OWN}"]
        async with window.get(f"{site.house.base}/v1/zones") as response:
            assert [zone["name"] for zone in (await response.json())["zones"]] == [OWN]
        async with window.get(f"{site.house.base}/v1/fleets") as response:
            assert response.status == 403


async def test_an_admin_cannot_be_limited(site: Site) -> None:
    with pytest.raises(ValueError, match="an admin is for all zones"):
        await site.house.hub.access.create_token(ADMIN, "x", Role.ADMIN, read_scope(["default/kitchen"]))


@pytest.mark.parametrize(
    ("pattern", "zone", "covered"),
    [
        ("default/kitchen", ("default", "kitchen"), True),
        ("default/kitchen", ("default", "kitchen-2"), False),
        ("default/kitchen", ("other", "kitchen"), False),
        ("default/*", ("default", "hall"), True),
        ("default/*", ("default-2", "hall"), False),
        ("*/hall", ("a", "hall"), True),
        ("plant-*/line-*", ("plant-b", "line-7"), True),
        ("default/h.ll", ("default", "hall"), False),
        ("*/*", ("a", "b"), True),
        ("default/cameras/yard", ("default", "yard"), False),
        ("default/cameras/*", ("default", "cameras"), False),
    ],
)
def test_a_pattern_covers_zones(pattern: str, zone: tuple[str, str], covered: bool) -> None:
    assert read_scope([pattern]).has_zone(*zone) is covered


@pytest.mark.parametrize(
    ("pattern", "fleet", "covered"),
    [
        ("default/cameras/yard", "default/cameras/yard", True),
        ("default/cameras/yard", "default/cameras/yard-2", False),
        ("default/cameras/yard", "default/sensors/yard", False),
        ("default/*/yard", "default/sensors/yard", True),
        ("*/cameras/*", "plant-b/cameras/line-7", True),
        ("default/cameras/*", "default-2/cameras/yard", False),
        ("default/c*", "default/cameras/yard", False),  # zones that begin with c
        ("default/*", "default/cameras/yard", True),
    ],
)
def test_a_pattern_covers_devices(pattern: str, fleet: str, covered: bool) -> None:
    assert read_scope([pattern]).has_device(fleet, "hall") is covered


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "kitchen",
        "/kitchen",
        "default/",
        "default/kit\nchen",
        f"a/{'b' * 400}",
        "a/b/c",
        "a/cameras/",
        "/cameras/b",
        "a/cameras/b/c",
        "a/cameras/b_c",
    ],
)
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not of the form NAMESPACE/ZONE"):
        read_scope([pattern])
