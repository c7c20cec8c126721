"""People who are limited to zones see and act on the notifications of these zones alone."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.notify.http import NotifyRoutes
from embereye.addons.notify.options import ALARM, Duty, Escalation, NotifyOptions, Step
from embereye.hub.http.route import declared
from embereye.hub.roles import Principal, Role, read_scope
from embereye.levels import Level
from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

from .hub_of import TOKEN, Running, options, route, running
from .servers import HttpService
from .test_webpush import Browser, push_service

ADMIN = Principal("admin", Role.ADMIN, "admin")
KITCHEN, VAULT = "default/sensors/kitchen-fleet", "default/sensors/vault-fleet"
UNREACHABLE = "ntfy://127.0.0.1:9/secret-topic"

pytestmark = pytest.mark.parametrize("stored", ["sqlite"], indirect=True)


@dataclass
class Guard:
    """Somebody with a token, and what they ask."""

    site: Running
    token: str = TOKEN
    asked: list[str] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Ask; return the status and the answer as text."""
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {self.token}"}) as session,
            session.request(method, f"http://127.0.0.1:{self.site.port}{path}", json=body) as response,
        ):
            return response.status, await response.text()

    async def read(self, path: str) -> Any:
        """The answer to a GET."""
        status, text = await self.ask("GET", path)
        assert status == 200, text
        return json.loads(text)

    async def names(self) -> list[str]:
        """The routes that they see."""
        return [each["name"] for each in (await self.read("/v1/notify"))["routes"]]


async def limited(site: Running, *patterns: str, role: Role = Role.OPERATOR, name: str = "guard") -> Guard:
    return Guard(site, await site.hub.access.create_token(ADMIN, name, role, read_scope(patterns)))


async def declare(site: Running, fleet: str, *zones: str) -> None:
    devices = [Device(id=f"s-{zone}", zone=zone) for zone in zones]
    await site.hub.coverage.set_roster(FleetRoster(fleet=fleet, epoch=1, deadline_ns=60 * SECOND, devices=devices))


def two_teams(service: HttpService) -> NotifyOptions:
    """Routes for a kitchen and for a vault, whose services do not answer, and one for both, whose service does."""
    return options(
        route("cook", UNREACHABLE, give_up=0.1),
        route("keeper", UNREACHABLE, give_up=0.1),
        route("both", service.url),
        duties={"night": Duty("night", otherwise=("keeper",)), "day": Duty("day", otherwise=("cook",))},
        escalations=(
            Escalation("cooking", frozenset({ALARM}), (Step(("day", "both")),), zones=("kitchen", "larder")),
            Escalation("keeping", frozenset({ALARM}), (Step(("night", "both")),), zones=("vault",)),
        ),
    )


@pytest.fixture
async def site(stored: Stored, service: HttpService) -> AsyncIterator[Running]:
    """A hub that gave up messages about a fire in the kitchen, and about one in the vault."""
    async with running(stored, two_teams(service), http=True) as site:
        await declare(site, KITCHEN, "kitchen")
        await declare(site, VAULT, "vault")
        for zone in ("kitchen", "vault"):
            site.ignite(zone)
            await eventually(lambda: service.requests and "default/" in service.titles()[-1])
        await eventually(lambda: len(site.notifier.incidents.dead()) == 2)
        await eventually(lambda: not site.notifier.incidents.pending("both"))
        yield site


async def test_no_route_shows_or_changes_the_notifications_of_another_zone(site: Running) -> None:
    guard = await limited(site, "default/kitchen")
    statuses = dict[str, int]()
    (letter,) = [each for each in site.notifier.incidents.dead() if each.route == "keeper"]
    died_ns = letter.dead_ns
    for each in declared(NotifyRoutes).values():
        if each.role is None:
            continue  # links in messages: their signature says what they are for
        for name in ("keeper", "cook"):
            path = each.path.format(route=name)
            status, text = await guard.ask(each.method, path, {} if each.method == "POST" else None)
            assert "vault" not in text, (path, text)
            assert text.count("keeper") == path.count("keeper"), (path, text)
            statuses[f"{each.method} {path}"] = status
    assert {each: status for each, status in statuses.items() if status != 200} == {
        "POST /v1/notify/push": 400,
        "POST /v1/notify/routes/keeper/test": 404,
    }
    assert len(statuses) == 7
    assert letter.dead_ns == died_ns, "it was not sent again"


async def test_the_notifications_of_the_guards_zones_are_shown_and_changed(site: Running) -> None:
    guard = await limited(site, "default/kitchen")
    state = await guard.read("/v1/notify")
    cook, both = state["routes"]
    assert (cook["name"], cook["deadLetters"], both["name"]) == ("cook", 1, "both")
    assert {each["title"] for each in cook["recent"]} == {"ALARM: default/kitchen"}
    assert [each["title"] for each in both["recent"]] == ["ALARM: default/kitchen"]
    assert state["duties"] == [{"name": "day", "routes": ["cook"], "problem": ""}]
    (escalation,) = state["escalations"]
    assert (escalation["name"], escalation["zones"]) == ("cooking", ["kitchen"])
    assert escalation["steps"] == [{"afterSeconds": 0.0, "routes": ["day", "both"]}]
    (dead,) = (await guard.read("/v1/notify/dead"))["dead"]
    assert (dead["route"], dead["zone"]) == ("cook", "default/kitchen")
    assert await guard.ask("POST", "/v1/notify/routes/both/test") == (200, '{"failed": ""}')
    assert await guard.ask("POST", "/v1/notify/dead/resend") == (200, '{"resent": 1}')
    assert await Guard(site).names() == ["cook", "keeper", "both"]


async def test_a_fleet_shows_the_notifications_of_its_zones(site: Running) -> None:
    assert await (await limited(site, VAULT)).names() == ["keeper", "both"]
    nothing = await limited(site, "default/sensors/unknown", "other/*", name="nothing")
    assert await nothing.names() == []
    state = await nothing.read("/v1/notify")
    assert (state["reachable"], state["sentence"]) == (False, "no route is for these zones")
    status, text = await nothing.ask("POST", "/v1/notify/routes/both/test")
    assert (status, "There is none for your zones" in text) == (404, True)


async def test_a_viewer_may_not_test_or_resend(site: Running) -> None:
    viewer = await limited(site, "default/kitchen", role=Role.VIEWER)
    for path in ("/v1/notify/routes/cook/test", "/v1/notify/dead/resend"):
        status, text = await viewer.ask("POST", path)
        assert (status, "this takes the role operator" in text) == (403, True)


async def test_a_route_for_some_zones_gets_news_about_them_only(stored: Stored, service: HttpService) -> None:
    wanted = options(
        route("cook", service.url, scope=read_scope([KITCHEN])),
        escalations=(Escalation("fire", frozenset({ALARM}), (Step(("cook",)),)),),
    )
    async with running(stored, wanted) as site:
        await declare(site, KITCHEN, "kitchen")
        site.ignite("vault")
        await eventually(site.notifier.incidents.unrouted)
        site.ignite("kitchen")
        await eventually(lambda: service.titles() == ["ALARM: default/kitchen"])
        assert [each.title for each in site.notifier.incidents.unrouted()] == ["default/vault"]


async def test_a_step_without_a_route_for_the_zone_is_followed_at_once(stored: Stored, service: HttpService) -> None:
    steps = (Step(("cook",)), Step(("chief",), after=3_600))
    wanted = options(
        route("cook", UNREACHABLE, scope=read_scope(["default/kitchen"])),
        route("chief", service.url),
        escalations=(Escalation("fire", frozenset({ALARM}), steps),),
    )
    async with running(stored, wanted) as site:
        site.ignite("vault")
        await eventually(lambda: service.titles() == ["ALARM: default/vault"])


async def test_a_browser_gets_the_news_of_its_persons_zones(stored: Stored) -> None:
    wanted = options(route("browsers", "webpush://"), public_url="https://hub.invalid", fold=0.5)
    people = {"everybody": Browser(), "cook": Browser(), "viewer": Browser()}
    async with push_service(*people.values()), running(stored, wanted, http=True) as site:
        await declare(site, KITCHEN, "kitchen")
        await declare(site, VAULT, "vault")
        guards = {
            "everybody": Guard(site),
            "cook": await limited(site, KITCHEN),
            "viewer": await limited(site, "default/*", role=Role.VIEWER, name="viewer"),
        }
        for name, browser in people.items():
            assert (await guards[name].read("/v1/notify/push"))["routes"] == ["browsers"]
            assert (await guards[name].ask("POST", "/v1/notify/push", browser.subscription()))[0] == 200
        for zone in ("vault", "kitchen"):
            site.ignite(zone)
        await eventually(lambda: all(zone in people["viewer"].text() for zone in ("vault", "kitchen")))
        await eventually(lambda: all(zone in people["everybody"].text() for zone in ("vault", "kitchen")))
        await eventually(lambda: people["cook"].messages and not site.notifier.incidents.deliveries)
        assert "vault" not in people["cook"].text()
        assert {message["link"] for message in people["viewer"].messages} == {""}, "a viewer cannot acknowledge"
        (link,) = {message["link"] for message in people["cook"].messages}
        _, incidents = site.notifier.open_link(link.rpartition("/")[2])
        assert [incident.title for incident in incidents] == ["default/kitchen"]
        # Who opens the console on the device decides about its news.
        assert (await guards["cook"].ask("POST", "/v1/notify/push", people["everybody"].subscription()))[0] == 200
        assert len(list(site.notifier.rows.all("device"))) == 3
        before = len(people["everybody"].messages)
        await site.notifier.test("browsers", "ada")
        assert len(people["everybody"].messages) == before + 1, "a test is for all"
        site.ignite("vault", Level.CRITICAL)
        site.ignite("kitchen", Level.CRITICAL)
        await eventually(lambda: "CRITICAL" in people["cook"].text() and not site.notifier.incidents.deliveries)
        assert "vault" not in json.dumps(people["everybody"].messages[before:])


@asynccontextmanager
async def kitchen_subscribed(stored: Stored) -> AsyncIterator[tuple[Running, Browser]]:
    """A hub with a browser that a person limited to the kitchen subscribed."""
    browser = Browser()
    async with push_service(browser), running(stored, options(route("browsers", "webpush://")), http=True) as site:
        await declare(site, KITCHEN, "kitchen")
        guard = await limited(site, "default/kitchen")
        assert (await guard.ask("POST", "/v1/notify/push", browser.subscription()))[0] == 200
        yield site, browser


async def test_a_browser_gets_nothing_after_its_token_was_revoked(stored: Stored) -> None:
    async with kitchen_subscribed(stored) as (site, browser):
        await site.hub.access.revoke(ADMIN, "guard")
        await limited(site, "default/*")
        site.ignite("kitchen")
        await eventually(lambda: "no device has subscribed" in site.notifier.reachable().sentence)
        assert browser.messages == []


async def test_an_alarm_that_no_subscribed_browser_may_see_is_a_failure(stored: Stored) -> None:
    async with kitchen_subscribed(stored) as (site, browser):
        site.ignite("vault")
        await eventually(lambda: "limited to other zones" in site.notifier.reachable().sentence)
        assert browser.messages == []
