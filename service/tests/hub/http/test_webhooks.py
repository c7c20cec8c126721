"""Webhooks over HTTP, by the command, and in the metrics."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from harness.stored import Stored

from embereye.hub.webhooks.options import WebhookOptions
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import ActionRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device

from .served import Served


@pytest.fixture
def declared(served: Served) -> Served:
    # Nothing is delivered here; test_delivery.py tests deliveries.
    served.hub.webhooks.declare([WebhookOptions("pager", "http://127.0.0.1:1/secret-path")])
    return served


async def test_the_list_has_the_state_of_webhooks_but_no_address(declared: Served) -> None:
    await declared.alarm()
    _, body = await declared.get("/v1/webhooks")
    (webhook,) = body["webhooks"]
    assert (webhook["name"], webhook["behind"], webhook["deadLetters"], webhook["failing"]) == ("pager", 1, 0, "")
    assert "secret-path" not in json.dumps(body)
    async with declared.session.get(f"{declared.base}/metrics") as response:
        text = await response.text()
    assert 'embereye_hub_webhook_behind_events{webhook="pager"} 1.0' in text


async def test_a_test_reports_why_it_failed(declared: Served) -> None:
    status, body = await declared.post("/v1/webhooks/pager/test", {})
    assert (status, "this machine's address" in str(body["failed"])) == (200, True)
    _, body = await declared.get("/v1/audit?limit=1")
    assert (body["entries"][0]["action"], body["entries"][0]["subject"]) == ("test webhook", "pager")


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("none/test", {}, 404, 'no webhook "none" is declared'),
        ("none/resend", {}, 404, 'no webhook "none" is declared'),
        ("pager/resend", {"cursors": [7]}, 400, "cursors: not a list"),
        ("pager/resend", {"cursors": "7"}, 400, "cursors: not a list"),
    ],
)
async def test_an_impossible_request_is_refused_by_name(
    declared: Served, path: str, body: object, status: int, sentence: str
) -> None:
    answered, refusal = await declared.post(f"/v1/webhooks/{path}", body)
    assert (answered, sentence in str(refusal["error"])) == (status, True)
    assert (await declared.get("/v1/webhooks/none/dead-letters"))[0] == 404


async def test_viewers_see_webhooks_but_cannot_use_them(declared: Served) -> None:
    _, made = await declared.post("/v1/access/tokens", {"name": "eve", "role": "viewer"})
    shown = {"Authorization": f"Bearer {made['token']}"}
    assert (await declared.get("/v1/webhooks", **shown))[0] == 200
    assert (await declared.post("/v1/webhooks/pager/resend", {}, **shown))[0] == 403
    assert (await declared.post("/v1/webhooks/pager/test", {}, **shown))[0] == 403


async def test_the_command_lists_tests_and_resends(
    stored: Stored, make_hub: Callable[..., Any], tmp_path: Path
) -> None:
    answers, bodies = [410, 401], list[bytes]()

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response(status=answers.pop(0) if answers else 204)

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    path = tmp_path / "webhooks.json"
    path.write_text(json.dumps({"webhooks": [{"name": "pager", "url": url, "allow": ["127.0.0.1"]}]}))
    hub = make_hub(stored, "--webhooks", str(path))
    hub.start()
    await hub.ready()

    async def command(*words: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "embereye_cli", "webhooks", "--hub", hub.grpc, "--token", hub.token, "--json", *words,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 30)
        return process.returncode or 0, out.decode(), err.decode()

    await make_event(hub)
    while (await listed(command))["deadLetters"] == "0":
        await asyncio.sleep(0.1)
    assert (await listed(command))["failing"] == "it answers 410"
    assert await command("test", "pager") == (1, "", "embereye: webhook pager: it answers 401\n")
    _, out, _ = await command("dead-letters", "pager")
    assert json.loads(out)["why"] == "it answers 410"
    assert await command("resend", "pager") == (0, '{"resent": 1}\n', "")
    while (await listed(command))["deadLetters"] != "0":
        await asyncio.sleep(0.1)
    assert await command("test", "pager") == (0, "{}\n", "")
    assert [json.loads(body)["event"]["cursor"] for body in (bodies[0], bodies[2])] == ["1", "1"]
    await runner.cleanup()


async def make_event(hub: Any) -> None:
    roster = FleetRoster(
        fleet="default/sensors/s", epoch=1, deadline_ns=3600 * SECOND, devices=[Device(id="s-1", zone="hall")]
    )
    async with hub.channel(hub.control) as link:
        await RosterStub(link).Set(roster, timeout=10)
    async with hub.channel() as link:
        await AlarmsStub(link).Test(ActionRequest(zone="hall"), timeout=10)


async def listed(command: Callable[..., Any]) -> dict[str, Any]:
    _, out, _ = await command("list")
    answer: dict[str, Any] = json.loads(out)
    return answer
