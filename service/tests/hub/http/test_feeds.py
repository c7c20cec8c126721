"""The WebSocket's formats and selections, stored subscriptions and the history, seen by a client."""

import asyncio

import aiohttp
import pytest
from google.protobuf import json_format
from harness.eventually import eventually

from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store
from embereye.hub.feeds import feed
from embereye.v1.alarms_pb2 import AlarmEvent

from .served import Served

WS = "/v1/alarms/ws"


async def test_events_arrive_as_json_or_protobuf_live_or_from_history(served: Served) -> None:
    await served.alarm("one", "hall")
    async with (
        served.session.ws_connect(f"{served.base}{WS}?cursor=0") as text,
        served.session.ws_connect(f"{served.base}{WS}?cursor=0&format=binary") as binary,
    ):
        for number in (1, 2):
            fields = await text.receive_json(timeout=10)
            event = AlarmEvent.FromString(await binary.receive_bytes(timeout=10))
            assert (fields["cursor"], event.cursor) == (str(number), number)
            assert (fields["zone"], fields["why"]) == (event.zone, event.why)
            await served.alarm("two", "attic")
    assert served.hub.feed.delivered == 2


async def test_a_client_can_change_its_selection_while_the_socket_is_open(served: Served) -> None:
    await served.put("/v1/subscriptions/attics", {"zones": ["attic"]})
    async with served.session.ws_connect(f"{served.base}{WS}?zone=hall&level=alarm") as socket:
        await served.alarm("one", "attic")
        await served.alarm("two", "hall")
        assert (await socket.receive_json(timeout=10))["zone"] == "hall"
        for change in ({"subscription": "attics"}, {"select": {"zones": ["attic"]}}):
            await socket.send_json(change)
            assert await socket.receive_json(timeout=10) == {"selected": {"zones": ["attic"]}, "cursor": "2"}
        await served.alarm("three", "hall", "s-02")
        await served.alarm("four", "attic", "s-02")
        assert (await socket.receive_json(timeout=10))["zone"] == "attic"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "the message is not JSON"),
        ("[]", 'the message is not {"select"'),
        ('{"select": {"levels": ["loud"]}}', 'levels: "loud" is not one of'),
        ('{"subscription": "none"}', 'no subscription "none" is stored'),
    ],
)
async def test_an_impossible_message_gets_an_error_and_changes_nothing(
    served: Served, text: str, sentence: str
) -> None:
    async with served.session.ws_connect(f"{served.base}{WS}?zone=hall") as socket:
        await socket.send_str(text)
        assert sentence in (await socket.receive_json(timeout=10))["error"]
        await served.alarm("one", "attic")
        await served.alarm("two", "hall")
        assert (await socket.receive_json(timeout=10))["zone"] == "hall"


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("format=xml", 400, 'format: "xml" is not one of json, binary'),
        ("slow=wait", 400, 'slow: "wait" is not one of disconnect, coalesce'),
        ("alive_ms=999", 400, "alive: 999 ms is too short"),
        ("unstored=maybe", 400, 'unstored: "maybe" is not one of no, yes'),
        ("kind=fog", 400, 'kinds: "fog" is not one of heat, smoke, gas, flame'),
        ("subscription=none", 404, 'no subscription "none" is stored'),
        ("subscription=night&zone=hall", 400, "Leave out zone, level, kind, device, type"),
        ("cursor=7", 409, "cursor 7 is newer than the newest event, 0"),
    ],
)
async def test_an_impossible_feed_is_refused_by_name(served: Served, query: str, status: int, sentence: str) -> None:
    headers = {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    await served.put("/v1/subscriptions/night", {"levels": ["alarm"]})
    answered, refusal = await served.get(f"{WS}?{query}", **headers)
    assert answered == status
    assert sentence in refusal["error"]


async def test_a_client_that_reads_nothing_is_disconnected_unless_it_coalesces(served: Served) -> None:
    served.hub.feed.max_lag = 300
    async with (
        served.session.ws_connect(f"{served.base}{WS}", max_msg_size=0) as slow,
        served.session.ws_connect(f"{served.base}{WS}?slow=coalesce", max_msg_size=0) as lazy,
    ):
        for connection in (slow, lazy):
            connection._conn.protocol.pause_reading()
        first = served.hub.feed.latest + 1
        for cursor in range(first, first + 1_500):
            served.hub.feed.publish([AlarmEvent(cursor=cursor, zone=f"z{cursor % 9}", why="x" * 20_000)])
            if not cursor % 100:
                await asyncio.sleep(0.001)
        for _ in range(500):
            if served.hub.feed.subscribers == 1:
                break
            await asyncio.sleep(0.02)
        assert served.hub.feed.subscribers == 1
        lazy._conn.protocol.resume_reading()
        cursors, events = list[int](), 0
        while not cursors or cursors[-1] < first + 1_499:
            fields = await lazy.receive_json(timeout=20)
            cursors.append(int(fields["cursor"]))
            events += 1 + fields.get("coalesced", 0)
        assert cursors == sorted(set(cursors))
        assert (len(cursors) < 1_500, events) == (True, 1_500)


async def test_the_feed_ends_with_its_cursor_when_the_hub_stops(served: Served) -> None:
    await served.alarm()
    async with served.session.ws_connect(f"{served.base}{WS}") as socket:
        served.hub.feed.close()
        message = await socket.receive(timeout=10)
    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)
    assert message.extra == "the hub is stopping: subscribe again with cursor 1"


async def test_the_reason_for_a_feeds_end_has_whole_characters_only(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: Store, after: int, limit: int) -> None:
        raise StoreError("x" + "ü" * 100)

    await served.alarm()
    served.hub.feed._recent.clear()
    monkeypatch.setattr("embereye.hub.hub.events_after", fail)
    async with served.session.ws_connect(f"{served.base}{WS}?cursor=0") as socket:
        message = await socket.receive(timeout=10)
    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.TRY_AGAIN_LATER)
    assert message.extra == "x" + "ü" * 59


async def test_subscriptions_are_stored_replaced_and_removed(served: Served) -> None:
    status, stored = await served.put("/v1/subscriptions/night", {"levels": ["alarm", "critical"], "zones": []})
    assert (status, stored["select"], stored["madeBy"]) == (200, {"levels": ["alarm", "critical"]}, "admin")
    await served.put("/v1/subscriptions/night", {"kinds": ["smoke"]})
    _, listed = await served.get("/v1/subscriptions")
    assert [subscription["select"] for subscription in listed["subscriptions"]] == [{"kinds": ["smoke"]}]
    async with served.session.delete(f"{served.base}/v1/subscriptions/night") as response:
        assert response.status == 200
    async with served.session.delete(f"{served.base}/v1/subscriptions/night") as response:
        assert response.status == 404
    for name, body in (("a b", {}), ("x", {"zone": ["hall"]}), ("x", {"zones": [7]})):
        assert (await served.put(f"/v1/subscriptions/{name}", body))[0] == 400
    assert (await served.get("/v1/subscriptions"))[1] == {"subscriptions": []}


async def pages(served: Served, query: str, way: str) -> list[list[int]]:
    all_pages, following = list[list[int]](), ""
    while True:
        _, body = await served.get(f"/v1/history?{query}{following}")
        all_pages.append([int(event["cursor"]) for event in body["events"]])
        if "next" not in body:
            return all_pages
        following = f"&{way}={body['next']}"


async def test_history_is_filtered_and_paged_both_ways(served: Served) -> None:
    for number in range(7):
        await served.alarm(f"e{number}", "hall" if number % 2 else "attic", f"s-{number}")
    assert await pages(served, "limit=3", "after") == [[1, 2, 3], [4, 5, 6], [7]]
    assert await pages(served, "newest=3", "before") == [[5, 6, 7], [2, 3, 4], [1]]
    assert await pages(served, "zone=hall&limit=2", "after") == [[2, 4], [6]]
    assert await pages(served, "zone=hall&newest=2", "before") == [[4, 6], [2]]
    assert await pages(served, "device=s-0&type=evidence", "after") == [[3, 5, 7]]
    assert await pages(served, "kind=smoke", "after") == [[]]
    _, body = await served.get("/v1/history")
    times = [event["timeNs"] for event in body["events"]]
    assert await pages(served, f"since={times[2]}&until={times[5]}", "after") == [[3, 4, 5]]
    assert await pages(served, "after=2&before=5&newest=9", "before") == [[3, 4]]


async def test_a_history_with_few_matches_is_searched_in_bounded_steps(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embereye.hub.history.PART", 2)
    monkeypatch.setattr("embereye.hub.history.MAX_EVENTS_READ", 4)
    for number in range(9):
        await served.alarm(f"e{number}", device=f"s-{number}")
    assert await pages(served, "type=state", "after") == [[1], [], []]
    assert await pages(served, "type=state&newest=5", "before") == [[], [], [1]]


@pytest.mark.parametrize("form", ["json", "binary"])
async def test_alive_messages_have_the_cursor_up_to_which_everything_was_sent(
    served: Served, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(feed, "ALIVE_MIN_MS", 10)

    async def receive(socket: aiohttp.ClientWebSocketResponse) -> AlarmEvent:
        if form == "binary":
            return AlarmEvent.FromString(await socket.receive_bytes(timeout=10))
        return json_format.ParseDict(await socket.receive_json(timeout=10), AlarmEvent())

    await served.alarm("one", "attic")
    async with served.session.ws_connect(f"{served.base}{WS}?alive_ms=10&format={form}&zone=hall") as socket:
        for cursor in (1, 1):
            event = await receive(socket)
            assert (event.type, event.cursor, event.zone, event.why) == (AlarmEvent.TYPE_ALIVE, cursor, "", "")
            assert event.time_ns
        await served.alarm("two", "attic", "s-02")
        while (event := await receive(socket)).cursor == 1:
            pass
        assert (event.type, event.cursor) == (AlarmEvent.TYPE_ALIVE, served.hub.feed.latest)
        served.hub.committer.note_failing("disk full")
        while not (event := await receive(socket)).why:
            pass
        assert event.why == "the hub cannot write its database: disk full"


async def test_a_client_that_leaves_among_its_messages_causes_no_error(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        socket = await served.session.ws_connect(f"{served.base}{WS}?zone=hall")
        for _ in range(50):
            await socket.send_str("{")
        assert socket._response.connection is not None
        assert socket._response.connection.transport is not None
        socket._response.connection.transport.abort()
        await asyncio.sleep(0)
    await eventually(lambda: not served.hub.feed.subscribers)
    assert [entry.getMessage() for entry in caplog.records if entry.levelname == "ERROR"] == []
