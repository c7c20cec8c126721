"""Links in messages: an opened page changes nothing, a tap acknowledges, once."""

import re
from dataclasses import replace

import aiohttp
import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.notify import links
from embereye.addons.notify.options import Canary
from embereye.levels import ZoneState

from .hub_of import TOKEN, Running, options, route, running
from .servers import HttpService

HUB = "http://hub.invalid"


def token_in(service: HttpService, number: int = -1) -> str:
    match = re.search(rf"{HUB}(/n/\S+)", service.requests[number][1]["message"])
    assert match
    return match[1]


def states(site: Running) -> dict[str, ZoneState]:
    return {zone.name: ZoneState(zone.state) for zone in site.hub.zones.messages()}


async def call(site: Running, method: str, path: str, **form: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{site.port}") as session,
        session.request(method, path, data=form or None) as response,
    ):
        return response.status, await response.text()


async def test_only_the_button_acknowledges_and_only_once(stored: Stored, service: HttpService) -> None:
    async with running(stored, options(route("phone", service.url), public_url=HUB), http=True) as site:
        site.ignite()
        await eventually(lambda: service.requests)
        path = token_in(service)
        status, page = await call(site, "GET", path)
        assert (status, states(site)["hall"]) == (200, ZoneState.ALARM)
        assert "default/hall" in page
        assert "<form" in page
        status, page = await call(site, "POST", path, who="Grace")
        assert (status, states(site)["hall"]) == (200, ZoneState.ACKNOWLEDGED)
        assert "acknowledged" in page
        status, page = await call(site, "POST", path, who="Mallory")
        assert status == 410
        assert "used already, by Grace (link to phone)" in page
        (entry,) = [entry for entry in await site.hub.history.audit(0, 10) if entry.action == "acknowledge"]
        assert (entry.who, entry.subject) == ("link to phone", "default/hall")
        assert entry.detail == "Grace (link to phone): by the link in a message to phone"


async def test_a_link_of_a_storm_acknowledges_all_that_its_message_names(stored: Stored, service: HttpService) -> None:
    async with running(stored, options(route("phone", service.url), public_url=HUB, fold=0.5), http=True) as site:
        for number in range(20):
            site.ignite(f"zone-{number}")
        await eventually(lambda: any("20 zones" in title for title in service.titles()))
        await eventually(lambda: not site.notifier.incidents.deliveries)
        path = token_in(service)
        site.ignite("later")
        status, _ = await call(site, "POST", path, who="Grace")
        assert status == 200
        await eventually(lambda: states(site).get("later"))
        alarms = [zone for zone, state in states(site).items() if state == ZoneState.ALARM]
        assert alarms == ["later"]


async def test_a_forged_or_old_link_does_nothing(stored: Stored, service: HttpService) -> None:
    async with running(stored, options(route("phone", service.url), public_url=HUB), http=True) as site:
        site.ignite()
        await eventually(lambda: service.requests)
        path = token_in(service)
        for wrong in (path[:-2], path.replace(".", "A.", 1), "/n/x", "/n/x.y", f"/n/{'a' * 5000}"):
            status, _ = await call(site, "POST", wrong)
            assert status in {404, 410}
        link, _ = site.notifier.open_link(path.removeprefix("/n/"))
        old = links.sign(replace(link, until=1, nonce=""), site.notifier.rows.get("key", "links"))
        status, page = await call(site, "POST", f"/n/{old}")
        assert (status, "too old" in page, states(site)["hall"]) == (410, True, ZoneState.ALARM)


async def test_a_canary_is_confirmed_by_a_tap_or_the_route_is_a_fault(stored: Stored, service: HttpService) -> None:
    canary = Canary(every=3_600, within=1)
    wanted = options(route("phone", service.url, canary=canary), public_url=HUB)
    async with running(stored, wanted, http=True) as site:
        await eventually(lambda: service.requests)
        assert service.titles() == ["EmberEye: please confirm"]
        await eventually(lambda: site.notifier.reachable().problems)
        assert "nobody has confirmed for" in site.notifier.reachable().sentence
        status, page = await call(site, "POST", token_in(service))
        assert (status, "The route works" in page) == (200, True)
        assert site.notifier.reachable().sentence.startswith("1 of 1 routes confirmed within")
        await call(site, "POST", token_in(service))
    async with running(stored, wanted) as site:
        assert site.notifier.reachable().confirmed == 1
    assert len(service.requests) == 1, "the canary is not sent again before its time"


@pytest.mark.parametrize("path", ["/v1/notify", "/v1/notify/dead"])
async def test_the_state_is_described_and_needs_a_viewer(stored: Stored, service: HttpService, path: str) -> None:
    from jsonschema import Draft202012Validator

    async with running(stored, options(route("phone", service.url)), http=True) as site:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{site.port}") as session:
            assert (await session.get(path)).status == 401
            listed = await (await session.get(path, headers=headers)).json()
            document = await (await session.get("/v1/openapi.json", headers=headers)).json()
            tested = await (await session.post("/v1/notify/routes/phone/test", headers=headers)).json()
            missing = await session.post("/v1/notify/routes/fax/test", headers=headers)
    schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(listed)
    assert (tested, missing.status) == ({"failed": ""}, 404)
    assert service.titles() == ["EmberEye: test message"]
