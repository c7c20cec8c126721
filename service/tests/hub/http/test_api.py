"""The hub's routes over HTTP and WebSocket, in this process."""

import asyncio
import re
import threading
import time
from importlib import resources

import aiohttp
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from markdown_it import MarkdownIt
from yarl import URL

from embereye.hub.committer import Draft
from embereye.hub.http.fleets import lists
from embereye.hub.tables.webhooks import DEAD_LETTERS, DeadLetter
from embereye.hub.webhooks.options import WebhookOptions
from embereye.levels import Kind, Level, Sense
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent, Zone
from embereye.v1.evidence_pb2 import CanaryFire, CanaryPlan, Coverage, EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device
from embereye.zone.canary import PREFIX

from .served import FLEET, FOLDER, Served


async def test_zones_have_state_reason_and_coverage(served: Served) -> None:
    served.coverage()
    await served.alarm()
    _, body = await served.get("/v1/zones")
    (zone,) = body["zones"]
    assert (zone["state"], zone["why"]) == ("ZONE_STATE_ALARM", "heat 61.3 °C ≥ 57 °C at s-01")
    assert (body["declared"], body["covered"], body["cursor"], body["failing"]) == (2, 1, "1", "")


async def declare(served: Served, *zones: str) -> None:
    devices = [Device(id=f"s-{zone}", zone=zone) for zone in zones]
    await served.hub.coverage.set_roster(FleetRoster(fleet=FLEET, deadline_ns=600 * SECOND, devices=devices))


async def test_paging_misses_no_zone_that_goes_into_alarm_meanwhile(served: Served) -> None:
    await declare(served, "attic", "hall", "kitchen", "yard")
    _, page = await served.get("/v1/zones?limit=2")
    assert [zone["name"] for zone in page["zones"]] == ["attic", "hall"]
    await served.alarm(zone="yard", device="s-yard")
    _, page = await served.get(f"/v1/zones?limit=2&after={page['next']}")
    assert [zone["name"] for zone in page["zones"]] == ["kitchen", "yard"]
    assert "next" not in page


async def test_paging_continues_after_an_entry_that_is_gone(served: Served) -> None:
    await declare(served, "attic", "hall", "kitchen")
    _, page = await served.get("/v1/zones?limit=2")
    await declare(served, "attic", "kitchen")
    _, page = await served.get(f"/v1/zones?limit=2&after={page['next']}")
    assert [zone["name"] for zone in page["zones"]] == ["kitchen"]


async def test_the_cursor_in_the_zones_answer_is_of_the_moment_of_the_list(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.alarm()
    monkeypatch.setattr(lists, "SLICE_SECONDS", -1.0)  # other tasks run after each zone
    messages, hub = served.hub.zones.messages, served.hub

    def list_and_publish() -> list[Zone]:
        zones = messages()
        asyncio.get_running_loop().call_soon(hub.feed.publish, [AlarmEvent(cursor=2, zone="hall")])
        return zones

    monkeypatch.setattr(hub.zones, "messages", list_and_publish)
    _, body = await served.get("/v1/zones")
    assert hub.feed.latest == 2
    assert body["cursor"] == "1", "a feed from here on has the events since the list was made"


async def test_people_act_over_http(served: Served) -> None:
    await served.alarm()
    zone = "/v1/zones/default/hall"
    status, event = await served.post(f"{zone}/acknowledge", {"who": " Ada ", "note": "going"})
    assert (status, event["who"], event["why"]) == (200, "Ada (admin)", "acknowledged by Ada (admin): going")
    status, body = await served.post(f"{zone}/acknowledge", {"who": "Bob"})
    assert (status, "Ada (admin) has already acknowledged" in str(body["error"])) == (409, True)
    status, event = await served.post(f"{zone}/reset", {"who": "Ada"})
    assert (status, event["state"]) == (200, "ZONE_STATE_NORMAL")


@pytest.mark.parametrize(
    ("path", "body", "headers", "answer"),
    [
        ("hall/acknowledge", {"who": 7}, {}, (400, "who: 7 is not a string")),
        ("hall/acknowledge", ["Ada"], {}, (400, "not a JSON object")),
        ("hall/acknowledge", {"who": "x" * 201}, {}, (400, "at most 200")),
        ("hall/acknowledge", {"note": "x" * 2001}, {}, (400, "note: 2001 characters, at most 2000")),
        ("hall/silences", {"reason": "x" * 2001, "minutes": 5}, {}, (400, "reason: 2001 characters")),
        ("hall/acknowledge", {"who": "Ada"}, {"Content-Type": "text/plain"}, (415, "application/json")),
        ("attic/reset", {"who": "Ada"}, {}, (404, "no zone default/attic")),
        ("hall/explode", {"who": "Ada"}, {}, (404, "404")),
    ],
)
async def test_an_impossible_action_is_refused_with_a_reason(
    served: Served, path: str, body: object, headers: dict[str, str], answer: tuple[int, str]
) -> None:
    await served.alarm()
    status, refusal = await served.post(f"/v1/zones/default/{path}", body, **headers)
    assert status == answer[0]
    assert answer[1] in str(refusal["error"])


async def test_a_zone_whose_name_has_a_slash_and_a_space_can_be_acted_on(served: Served) -> None:
    await served.alarm(zone="hall 1/east")
    async with served.session.post(
        URL(f"{served.base}/v1/zones/default/hall%201%2Feast/acknowledge", encoded=True),
        json={"who": "Ada"},
    ) as response:
        assert (response.status, (await response.json())["zone"]) == (200, "hall 1/east")


async def test_devices_have_coverage_values_ledger_and_pictures(served: Served) -> None:
    served.coverage()
    _, body = await served.get("/v1/devices")
    first, second = body["devices"]
    assert (first["covered"], first["state"], first["shards"]) == (True, "streaming", ["hall-0"])
    assert first["ledger"]["shed"] == {"queue full": "1"}
    assert first["thermal"] == {"hottest": 20.0, "relative": False}
    assert (second["covered"], second["reason"]) == (False, "never heard")
    for path in (f"{FOLDER}/s-01/snapshot.jpg", "/v1/snapshot/s-01.jpg"):
        async with served.session.get(served.base + path) as response:
            assert (response.content_type, await response.read()) == ("image/jpeg", b"\xff\xd8still")
    _, thermal = await served.get(f"{FOLDER}/s-01/thermal")
    assert thermal["celsius"] == [20.0] * 767 + [None]
    for path in (f"{FOLDER}/s-02/thermal", f"{FOLDER}/s-09/snapshot.jpg", "/v1/snapshot/s-02.jpg"):
        assert (await served.get(path))[0] == 404


async def test_the_picture_of_an_alarm_is_served(served: Served) -> None:
    await served.alarm()
    alarm = served.hub.zones.messages()[0].alarm
    async with served.session.get(f"{served.base}/v1/alarms/{alarm}/s-01/1.jpg") as response:
        assert await response.read() == b"\xff\xd8jpeg"
    assert (await served.get(f"/v1/alarms/{alarm}/s-01/2.jpg"))[0] == 404


async def test_an_alarm_lists_only_pictures_that_can_be_fetched(served: Served) -> None:
    await served.alarm(device="s 1/2")
    await served.alarm("two", device="s-02", snapshot=b"")
    await served.alarm("three", device="s-03")
    alarm = served.hub.zones.messages()[0].alarm
    _, body = await served.get(f"/v1/alarms/{alarm}/clips")
    assert [picture["device"] for picture in body["pictures"]] == ["s 1/2", "s-03"]
    for picture in body["pictures"]:
        async with served.session.get(URL(served.base + picture["url"], encoded=True)) as response:
            assert await response.read() == b"\xff\xd8jpeg"
    assert (await served.get("/v1/alarms/0/clips"))[1]["pictures"] == []


async def test_history_is_paged_by_cursor(served: Served) -> None:
    for number in range(5):
        await served.alarm(f"e{number}", device=f"s-{number}")
    _, body = await served.get("/v1/history?after=1&limit=2")
    assert [event["cursor"] for event in body["events"]] == ["2", "3"]
    assert body["latest"] == "5"
    _, body = await served.get("/v1/history?newest=2")
    assert [event["cursor"] for event in body["events"]] == ["4", "5"]
    _, body = await served.get("/v1/history?zone=attic")
    assert body["events"] == []
    for query in ("after=-1", "newest=1&after=-1", "newest=1&limit=x"):
        assert (await served.get(f"/v1/history?{query}"))[0] == 400


async def test_one_address_cannot_take_every_websocket(served: Served) -> None:
    served.hub.feed.max_per_address = 1
    async with served.session.ws_connect(f"{served.base}/v1/alarms/ws"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await served.session.ws_connect(f"{served.base}/v1/alarms/ws")
    assert caught.value.status == 503


async def test_a_websocket_resumes_by_cursor_and_continues_live(served: Served) -> None:
    for number in range(3):
        await served.alarm(f"e{number}", device=f"s-{number}")
    async with served.session.ws_connect(f"{served.base}/v1/alarms/ws?cursor=1") as socket:
        await served.alarm("live", device="s-9")
        seen = [await socket.receive_json(timeout=10) for _ in range(3)]
    assert [event["cursor"] for event in seen] == ["2", "3", "4"]
    assert seen[-1]["why"] == "also heat 61.3 °C ≥ 57 °C at s-9"
    async with served.session.ws_connect(f"{served.base}/v1/alarms/ws") as socket:
        await served.alarm("later", device="s-10")
        assert (await socket.receive_json(timeout=10))["cursor"] == "5"


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("cursor=99", {}, 409),
        ("cursor=abc", {}, 400),
        ("", {"Origin": "https://elsewhere.example"}, 403),
    ],
)
async def test_a_websocket_that_is_not_allowed_is_refused(
    served: Served, query: str, headers: dict[str, str], status: int
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await served.session.ws_connect(f"{served.base}/v1/alarms/ws?{query}", headers=headers)
    assert caught.value.status == status


async def test_the_console_is_served_with_a_policy_against_foreign_scripts(served: Served) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/static/console.js", "text/javascript"),
        ("/static/icon.svg", "image/svg+xml"),
    ):
        async with served.session.get(served.base + path) as response:
            assert (response.status, response.content_type) == (200, kind)
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert (await served.get("/static/..%2Fmain.py"))[0] == 404


async def test_every_alert_has_a_runbook_page_without_sign_in(served: Served) -> None:
    async with aiohttp.ClientSession() as stranger:
        async with stranger.get(f"{served.base}/runbooks") as response:
            names = re.findall(r'href="/runbooks/(\w+)"', await response.text())
        assert len(names) > 30
        for name in names:
            async with stranger.get(f"{served.base}/runbooks/{name}") as response:
                text = await response.text()
            assert (response.status, response.content_type) == (200, "text/html")
            assert f"<h1>{name}</h1>" in text
            assert set(re.findall(r'<a href="/runbooks/(\w+)', text)) <= set(names)
            assert not re.search(r'<a href="(?!/runbooks/)', text), "a link to a page that is not served"
        for path in ("Nothing", "..%2Fhub.py", "EmberEyeHubDown.md"):
            async with stranger.get(f"{served.base}/runbooks/{path}") as response:
                assert response.status == 404, path


async def test_a_page_for_strangers_is_rendered_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    render, rendered = MarkdownIt.render, list[str]()
    monkeypatch.setattr(MarkdownIt, "render", lambda self, text: rendered.append(text) or render(self, text))
    async with aiohttp.ClientSession() as stranger:
        for path in ("/runbooks", "/runbooks/EmberEyeHubDown") * 3:
            async with stranger.get(served.base + path) as response:
                assert response.status == 200
    assert len(rendered) == len(set(rendered))


def test_the_console_never_turns_text_into_markup_and_loads_no_foreign_content() -> None:
    files = resources.files("embereye.hub").joinpath("static")
    for file in (*files.iterdir(), *files.joinpath("messages").iterdir()):
        if file.is_dir():
            continue
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", text), (
            file.name
        )


async def test_metrics_have_states_devices_and_commits(served: Served) -> None:
    served.coverage()
    await served.alarm()
    async with served.session.get(f"{served.base}/metrics") as response:
        text = await response.text()
    for line in (
        'embereye_hub_zones{state="alarm"} 1.0',
        "embereye_hub_evidence_received_total 1.0",
        'embereye_hub_events_total{type="state"} 1.0',
        "embereye_hub_devices 2.0",
        "embereye_hub_devices_covered 1.0",
        "embereye_hub_store_failing 0.0",
    ):
        assert line in text
    assert "embereye_hub_commit_seconds_count" in text


async def test_a_zone_in_alarm_has_a_series_until_it_is_normal(served: Served) -> None:
    async def series() -> list[str]:
        async with served.session.get(f"{served.base}/metrics") as response:
            return [
                line for line in (await response.text()).splitlines() if line.startswith("embereye_hub_zone_active{")
            ]

    served.coverage()
    assert await series() == []
    await served.alarm()
    zone = 'embereye_hub_zone_active{namespace="default",zone="hall"'
    assert await series() == [f'{zone},state="alarm",sign="heat"}} 1.0']
    silence = await served.post("/v1/zones/default/hall/silences", {"reason": "welding", "minutes": 5})
    assert silence[0] == 200, silence
    assert await series() == [f'{zone},state="alarm",sign="heat"}} 0.0']


async def test_the_first_sign_of_a_zones_series_stays_when_it_returns(served: Served) -> None:
    async def report(name: str, kind: Kind, level: Level) -> None:
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{name}-{now}", episode=f"{name}-{now}", fleet=FLEET, device=name, zone="hall", kind=kind.wire,
            sense=Sense.SENSOR.wire, level=level.wire, since_ns=now, until_ns=now,
        )  # fmt: skip
        served.hub.inbox.admit(item, lambda _: None)
        await served.hub.committer.flush(10)

    for name, kind, level in (
        ("s-01", Kind.HEAT, Level.ALARM),
        ("s-02", Kind.SMOKE, Level.ALARM),
        ("s-01", Kind.HEAT, Level.CLEAR),
        ("s-01", Kind.HEAT, Level.ALARM),
    ):
        await report(name, kind, level)
    async with served.session.get(f"{served.base}/metrics") as response:
        assert 'zone="hall",state="alarm",sign="heat"} 1.0' in await response.text()


async def test_a_hub_that_cannot_write_stays_alive_and_reports_why(served: Served) -> None:
    served.hub.committer.note_failing("disk full")
    async with served.session.get(f"{served.base}/healthz") as response:
        assert (response.status, await response.text()) == (200, "ok\n")
    async with served.session.get(f"{served.base}/v1/zones") as response:
        assert "disk full" in (await response.json())["failing"]


# Host names and origins


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[::1", "", "a b"])
async def test_requests_for_another_host_name_are_refused(served: Served, host: str) -> None:
    await served.alarm()
    calls = [served.get(path, Host=host) for path in ("/v1/zones", "/", "/metrics")]
    calls.append(served.post("/v1/zones/default/hall/acknowledge", {"who": "Ada"}, Host=host))
    for status, body in await asyncio.gather(*calls):
        assert (status, "--allowed-host" in str(body["error"])) == (421, True)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await served.session.ws_connect(f"{served.base}/v1/alarms/ws", headers={"Host": host})
    assert caught.value.status == 421
    assert served.hub.zones.messages()[0].state == Level.ALARM.wire


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:1", "localhost", "LOCALHOST:8080", "[::1]:8080", "10.1.2.3", "hub.example", "x.sites.example:81"],
)
async def test_addresses_and_allowed_names_are_served(served: Served, host: str) -> None:
    assert (await served.get("/v1/zones", Host=host))[0] == 200


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "http://127.0.0.1:1", "null", "http://[", ""])
async def test_a_page_of_another_site_can_change_nothing(served: Served, origin: str) -> None:
    await served.alarm()
    status, body = await served.post("/v1/zones/default/hall/acknowledge", {"who": "Ada"}, Origin=origin)
    assert (status, "another site" in str(body["error"])) == (403, True)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await served.session.ws_connect(f"{served.base}/v1/alarms/ws", headers={"Origin": origin})
    assert caught.value.status == 403


async def test_the_hubs_pages_can_act(served: Served) -> None:
    await served.alarm()
    headers = {"Origin": served.base}
    async with served.session.ws_connect(f"{served.base}/v1/alarms/ws", headers=headers):
        assert (await served.post("/v1/zones/default/hall/acknowledge", {"who": "Ada"}, **headers))[0] == 200


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("hub.example:443", "https://hub.example", 200),
        ("hub.example:80", "http://hub.example", 200),
        ("[::1]:443", "https://[::1]", 200),
        ("hub.example:443", "http://hub.example", 403),
        ("hub.example:8443", "https://hub.example", 403),
        ("hub.example", "https://hub.example:443.evil.example", 403),
        ("x.sites.example:443", "https://y.sites.example", 403),
    ],
)
async def test_a_proxy_can_add_the_default_port_that_browsers_leave_out(
    served: Served, host: str, origin: str, status: int
) -> None:
    await served.alarm()
    headers = {"Host": host, "Origin": origin}
    assert (await served.post("/v1/zones/default/hall/acknowledge", {"who": "Ada"}, **headers))[0] == status


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/history?newest={'9' * 5000}",
        f"/v1/history?after={'9' * 5000}",
        f"/v1/history?after={'0' * 5000}",
        f"/v1/history?limit={chr(0x661) * 10}",
        f"/v1/alarms/a/s-01/{'9' * 5000}.jpg",
        f"/v1/alarms/a/s-01/{chr(0x661) * 3}.jpg",
        f"/v1/alarms/ws?cursor={'9' * 5000}",
    ],
)
async def test_an_impossible_number_is_a_client_error(served: Served, path: str) -> None:
    assert (await served.get(path))[0] in {400, 404}


async def test_an_alarm_is_marked_as_false_explained_and_unmarked(served: Served) -> None:
    await served.alarm()
    _, listed = await served.get("/v1/alarms")
    (alarm,) = listed["alarms"]
    path = f"/v1/alarms/{alarm['alarm']}"
    assert (await served.post(f"{path}/false", {"who": "Ada"}))[0] == 400
    status, event = await served.post(f"{path}/false", {"who": "Ada", "reason": "steam"})
    assert (status, event["type"]) == (200, "TYPE_FALSE_ALARM")
    assert (await served.post(f"{path}/false", {"reason": "dust"}))[0] == 409
    _, explained = await served.get(path)
    assert explained["falseAlarm"]["reason"] == "steam"
    assert [event["type"] for event in explained["events"]] == ["TYPE_STATE", "TYPE_FALSE_ALARM"]
    assert [mark["alarm"] for mark in (await served.get("/v1/false-alarms"))[1]["falseAlarms"]] == [alarm["alarm"]]
    async with served.session.delete(f"{served.base}{path}/false") as response:
        assert response.status == 200
    async with served.session.delete(f"{served.base}{path}/false") as response:
        assert response.status == 404
    assert (await served.get("/v1/false-alarms"))[1] == {"falseAlarms": []}
    assert (await served.get("/v1/alarms/0123456789abcdef"))[0] == 404


async def test_an_alarm_whose_start_was_deleted_is_explained_as_it_is_listed(served: Served) -> None:
    await served.alarm("one", "hall", "s-01")
    await served.alarm("two", "attic", "s-02")
    until_ns = time.time_ns()
    for action in ("acknowledge", "reset"):
        await served.post(f"/v1/zones/default/hall/{action}", {})
    assert await served.hub._store.write(lambda store: store.prune(until_ns, 0))
    _, listed = await served.get("/v1/alarms")
    for alarm, cursors in zip(listed["alarms"], ([], ["3", "4"]), strict=True):
        status, explained = await served.get(f"/v1/alarms/{alarm['alarm']}")
        assert (status, [event["cursor"] for event in explained.pop("events")]) == (200, cursors)
        assert explained == alarm


@pytest.mark.parametrize("path", ["/v1/history", "/v1/alarms/{alarm}", "/v1/webhooks/pager/dead-letters"])
async def test_other_requests_are_served_while_events_are_serialised(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    served.hub.webhooks.declare([WebhookOptions("pager", "https://pager.example/")])
    await served.hub.committer.commit(bury)
    await served.alarm()
    path = path.format(alarm=served.hub.zones.messages()[0].alarm)
    loop, write, went_on = asyncio.get_running_loop(), json_format.MessageToDict, list[bool]()

    def write_out(message: Message) -> object:
        turn = threading.Event()
        loop.call_soon_threadsafe(turn.set)
        went_on.append(turn.wait(5))
        return write(message)

    monkeypatch.setattr(json_format, "MessageToDict", write_out)
    assert (await served.get(path))[0] == 200
    assert went_on == [True]


async def test_alarms_are_listed_page_by_page(served: Served) -> None:
    for number in range(5):
        await served.alarm(f"{number}", zone=f"z{number}", device=f"s-{number}")
    seen, asked = [], "/v1/alarms?limit=2"
    while True:
        _, body = await served.get(asked)
        seen += [alarm["zone"] for alarm in body["alarms"]]
        if "next" not in body:
            break
        asked = f"/v1/alarms?limit=2&before={body['next']}"
    assert seen == ["z4", "z3", "z2", "z1", "z0"]
    assert (await served.get("/v1/alarms?of=nonsense"))[0] == 400


async def test_a_timeline_has_the_states_of_each_zone(served: Served) -> None:
    began = time.time_ns()
    await served.alarm()
    _, body = await served.get(f"/v1/timeline?from={began - 10**9}&until={began + 60 * 10**9}")
    (lane,) = body["zones"]
    (state,) = lane["states"]
    assert (lane["zone"], state["state"], state["untilNs"]) == ("hall", "ZONE_STATE_ALARM", "0")
    assert int(state["fromNs"]) >= began
    assert (body["clips"], body["truncated"]) == ([], False)
    assert [lane["zone"] for lane in (await served.get("/v1/timeline"))[1]["zones"]] == ["hall"]
    _, body = await served.get(f"/v1/timeline?from=0&until={10**18}")
    assert (body["fromNs"], body["zones"]) == (str(10**18 - 8 * 86_400 * 10**9), [])


async def test_a_timeline_has_the_ends_of_states_open_at_its_end(served: Served) -> None:
    began = time.time_ns()
    await served.alarm()
    until = time.time_ns()
    _, event = await served.post("/v1/zones/default/hall/acknowledge", {})
    _, body = await served.get(f"/v1/timeline?from={began}&until={until}")
    ((state,),) = [lane["states"] for lane in body["zones"]]
    assert (state["state"], state["untilNs"]) == ("ZONE_STATE_ALARM", event["timeNs"])


async def test_times_are_those_of_the_wall_clock_even_if_it_was_set(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.hub.timeline, "_wall", lambda: time.time_ns() + 3600 * SECOND)
    served.hub.webhooks.declare([WebhookOptions("pager", "https://pager.example/")])
    await served.hub.committer.commit(bury)
    await served.post("/v1/access/tokens", {"name": "ada", "role": "viewer"})
    now, within = served.hub.timeline.now_ns(), 10 * SECOND
    plan = CanaryPlan(process="p", interval_ns=within, within_ns=within)
    served.hub.canaries.expect(Coverage(fleet=FLEET, shard="hall-0", time_ns=now, canary=plan))
    fire = CanaryFire(shard="hall-0", process="p", lit_ns=now, within_ns=within)
    canary = EvidenceItem(
        id="c", fleet=FLEET, device=f"{PREFIX}1", kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire,
        level=Level.ALARM.wire, since_ns=now, until_ns=now, canary=fire,
    )  # fmt: skip
    served.hub.inbox.admit(canary, lambda _: None)
    assert await served.hub.committer.flush(10)
    async with served.session.get(f"{served.base}/metrics") as response:
        text = await response.text()
    (metric,) = re.findall(r"embereye_canary_alarmed_timestamp_seconds\{.*\} (.+)", text)
    _, letters = await served.get("/v1/webhooks/pager/dead-letters")
    _, tokens = await served.get("/v1/access/tokens")
    _, canaries = await served.get("/v1/canaries")
    times = [int(letters["deadLetters"][0]["diedNs"]) / SECOND, int(tokens["tokens"][0]["madeNs"]) / SECOND]
    times += [canaries["canaries"][0]["alarmed"], float(metric)]
    assert times == [pytest.approx(time.time() + 3600, abs=600)] * 4


def bury(draft: Draft) -> None:
    letter = DeadLetter("pager", 1, draft.now_ns, 1, "404", AlarmEvent(cursor=1))
    draft.transaction[DEAD_LETTERS]["pager", 1] = letter


async def test_files_of_the_console_are_compressed_for_browsers_that_accept_it(served: Served) -> None:
    for path in ("/", "/static/console.js", "/static/console.css"):
        async with served.session.get(f"{served.base}{path}", headers={"Accept-Encoding": "gzip"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            text = await response.text()
        async with served.session.get(f"{served.base}{path}", headers={"Accept-Encoding": "identity"}) as response:
            assert "Content-Encoding" not in response.headers
            assert await response.text() == text
