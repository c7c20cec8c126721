"""The hub behaves as /v1/openapi.json describes it."""

import asyncio
import copy
import gzip
import re
from typing import Any

import aiohttp
import pytest
from jsonschema import Draft202012Validator
from prometheus_client import CollectorRegistry

from embereye.hub.clips.store import SUFFIXES
from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store
from embereye.hub.http.access.origin import SAFE_METHODS
from embereye.hub.http.api import Api
from embereye.hub.http.clips import CONTENT_TYPES
from embereye.hub.http.route import Route
from embereye.hub.plans.images import PlanImage
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.overlays import Overlay
from embereye.hub.tables.plans import Place
from embereye.hub.webhooks.options import WebhookOptions
from embereye.v1.roster_pb2 import FleetScaling, ScaleChange, ShardLoad
from embereye.v1.shard_pb2 import Load

from .served import FLEET, FOLDER, TOKEN, Served

URL = "/v1/openapi.json"
# Parts of paths that have a certain form.
FORMS = {
    "alarm": "0" * 16, "silence": "0" * 16, "name": "0" * 64, "form": "mkv", "action": "test",
}  # fmt: skip
ADMIN = Principal("admin", Role.ADMIN, "admin")
SCALING = FleetScaling(
    fleet=FLEET, mode="embedded", shards=2, load=Load(queue_depth=3),
    last=ScaleChange(time="2026-11-22T10:00:00Z", before=1, after=2, reason="r"),
    members=[ShardLoad(shard="hall-0", load=Load(queue_depth=3)), ShardLoad(shard="hall-1", why_not_ready="w")],
)  # fmt: skip


def path_of(route: Route) -> str:
    """Return a path that matches `route`."""
    kind = "sensors" if "sensors" in route.path else "1"
    return re.sub(r"\{(\w+)\}", lambda part: {**FORMS, "kind": kind}.get(part[1], "x"), route.template)


def close(schema: Any) -> Any:
    """Return the schema with undescribed fields forbidden."""
    if isinstance(schema, dict):
        closed = {name: close(value) for name, value in schema.items()}
        if "properties" in schema:
            closed.setdefault("additionalProperties", False)
        return closed
    return [close(part) for part in schema] if isinstance(schema, list) else schema


async def test_each_declared_route_is_routed_and_described(served: Served) -> None:
    api = Api(served.hub)
    routed = {(route.method, route.resource.canonical) for route in api.app(CollectorRegistry()).router.routes()}
    declared = {(method, route.template) for route in api.routes() for method in route.methods}
    assert declared == routed
    _, document = await served.get(URL)
    described = {
        (method.upper(), path): operation.get("x-embereye-role")
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert described == {
        (route.method, route.template): route.role.word if route.role else None for route in api.routes()
    }


async def test_each_declared_route_refuses_everybody_below_its_role(served: Served) -> None:
    tokens = {Role.VIEWER: "", Role.OPERATOR: ""}
    for role in tokens:
        _, made = await served.post("/v1/access/tokens", {"name": role.word, "role": role.word})
        tokens[role] = str(made["token"])
    async with aiohttp.ClientSession() as stranger:
        for route in Api(served.hub).routes():
            for method in route.methods:
                needed: int = route.role or 0
                for role, token in {0: "", **tokens}.items():
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    if role >= needed and (role or method not in SAFE_METHODS):
                        continue  # it would be served
                    url = served.base + path_of(route)
                    async with stranger.request(method, url, headers=headers, allow_redirects=False) as response:
                        refused = 403 if role else 303 if (method, route.path) == ("GET", "/") else 401
                        is_refused = response.status == refused
                    assert (method, route.path, role, is_refused) == (method, route.path, role, role < needed)


async def test_a_request_that_no_route_serves_needs_a_role(served: Served) -> None:
    token = (await served.post("/v1/access/tokens", {"name": "v", "role": "viewer"}))[1]["token"]
    async with aiohttp.ClientSession() as stranger:
        for method, path, shown, status in (
            ("GET", "/v1/nothing", "", 401), ("GET", "/v1/nothing", token, 404), ("GET", "/static/a/b", "", 401),
            ("POST", "/login", "", 401), ("POST", "/login", token, 403), ("POST", "/login", TOKEN, 405),
        ):  # fmt: skip
            headers = {"Authorization": f"Bearer {shown}"} if shown else {}
            async with stranger.request(method, served.base + path, headers=headers) as response:
                assert (method, path, response.status) == (method, path, status)


async def test_each_operation_names_its_role(served: Served) -> None:
    _, document = await served.get(URL)
    roles = {
        (method, path): operation.get("x-embereye-role", "")
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert roles["post", "/v1/zones/{namespace}/{zone}/{action}"] == "operator"
    assert roles["delete", "/v1/access/tokens/{name}"] == roles["get", "/v1/audit"] == "admin"
    assert {path for (_, path), role in roles.items() if not role} == {
        "/healthz", "/login", "/login/oidc", "/login/oidc/callback", "/runbooks", "/runbooks/{name}",
        "/service-worker.js", "/static/{name}",
        "/v1/session",
    }  # fmt: skip
    assert (await served.get(URL, Authorization="Bearer somebody-else"))[0] == 401


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/v1/zones", ""), ("/v1/zones?order=urgent", ""),
        ("/v1/devices", ""), ("/v1/devices?limit=1", ""), ("/v1/devices?text=s", ""),
        ("/v1/history", ""), ("/v1/audit", ""), ("/v1/subscriptions", ""), ("/v1/history?newest=1", ""),
        ("/v1/webhooks", ""), ("/v1/silences", ""), ("/v1/fleets", ""), ("/v1/plans", ""),
        ("/v1/overlays", ""),
        ("/v1/plans/Attic", "/v1/plans/{name}"),
        ("/v1/alarms", ""), ("/v1/false-alarms", ""), ("/v1/timeline?from=1&until=2", ""),
        ("/v1/canaries", ""), ("/v1/access/me", ""), ("/v1/access/tokens", ""),
        (f"{FOLDER}/s-01/thermal", "/v1/devices/{namespace}/{kind}/{fleet}/{device}/thermal"),
        (f"{FOLDER}/s-01", "/v1/devices/{namespace}/{kind}/{fleet}/{device}"),
    ],
)  # fmt: skip
async def test_an_answer_has_the_described_fields_only(served: Served, path: str, template: str) -> None:
    served.coverage()
    await served.alarm()
    await served.post("/v1/access/tokens", {"name": "ada", "role": "viewer"})
    served.hub.webhooks.declare([WebhookOptions("pager", "https://pager.example/")])
    await served.put("/v1/subscriptions/night", {"levels": ["alarm"], "types": ["state"]})
    await served.post("/v1/zones/default/hall/acknowledge", {"who": "Ada", "note": "going"})
    await served.post("/v1/zones/default/hall/silences", {"reason": "welding", "minutes": 5})
    await served.hub.plans.store(ADMIN, "Attic", PlanImage("image/png", b"pixels", 4, 3))
    await served.hub.plans.place(ADMIN, "Attic", (FLEET, "s-01"), Place(0.5, 0.5))
    served.hub.coverage.scaling.update(SCALING)
    await served.hub.overlays.store(ADMIN, ("default/cameras/yard", "c"), Overlay(FLEET, "s-01", 0.5, 0.5, 0.6, 0.5))
    _, document = await served.get(URL)
    operation = document["paths"][template or path.partition("?")[0]]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    status, answer = await served.get(path)
    assert status == 200
    whole = close(copy.deepcopy({**schema, "components": document["components"]}))
    assert [error.message for error in Draft202012Validator(whole).iter_errors(answer)] == []


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/v1/history", ""), ("/v1/audit", ""), ("/v1/alarms", ""), ("/v1/timeline", ""),
        ("/v1/alarms/0123456789abcdef", "/v1/alarms/{alarm}"), ("/v1/alarms/a/clips", "/v1/alarms/{alarm}/clips"),
        ("/v1/alarms/a/s-01/1.jpg", "/v1/alarms/{alarm}/{device}/{kind}.jpg"),
        ("/v1/webhooks/pager/dead-letters", "/v1/webhooks/{name}/dead-letters"),
    ],
)  # fmt: skip
async def test_operations_that_read_the_database_are_described_with_its_failure(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, template: str
) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("disk I/O error")

    served.hub.webhooks.declare([WebhookOptions("pager", "https://pager.example/")])
    monkeypatch.setattr(served.hub._store, "read", fail)
    assert await served.get(path) == (503, {"error": "disk I/O error"})
    _, document = await served.get(URL)
    assert "503" in document["paths"][template or path]["get"]["responses"]


async def test_a_change_is_refused_with_503_while_the_database_is_full(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("database or disk is full")

    served.coverage()
    await served.alarm()
    await served.hub.plans.store(ADMIN, "Attic", PlanImage("image/png", b"pixels", 4, 3))
    changes = {
        "/v1/subscriptions/night": {"levels": ["alarm"]},
        f"/v1/plans/Attic/devices/{FLEET}/s-01": {"x": 0.5, "y": 0.5},
    }
    monkeypatch.setattr(Store, "commit", full)
    for path, body in changes.items():
        status, refusal = await served.put(path, body)
        assert (path, status, "disk is full" in str(refusal["error"])) == (path, 503, True)
    status, refusal = await served.post("/v1/zones/default/hall/acknowledge", {})
    assert (status, "disk is full" in str(refusal["error"])) == (503, True)


async def test_every_form_of_a_clip_is_described(served: Served) -> None:
    _, document = await served.get(URL)
    operation = document["paths"]["/v1/clips/{name}.{form}"]["get"]
    (form,) = [part["schema"] for part in operation["parameters"] if part["name"] == "form"]
    assert set(form["enum"]) == set(SUFFIXES.values())
    for status in ("200", "206"):
        assert set(operation["responses"][status]["content"]) == set(CONTENT_TYPES.values())


async def test_operations_without_head_are_named(served: Served) -> None:
    _, document = await served.get(URL)
    routes = Api(served.hub).app(CollectorRegistry()).router.routes()
    methods = {(route.method, route.resource.canonical) for route in routes}
    without = {path for method, path in methods if method == "GET" and ("HEAD", path) not in methods}
    assert without == {"/v1/clips/{name}.mjpg", "/v1/timeline/export.zip"}
    assert all(path in document["info"]["description"] for path in without)


async def test_an_unknown_method_is_refused_with_the_allowed_ones(served: Served) -> None:
    async with served.session.delete(f"{served.base}/v1/zones") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")


async def test_no_closed_path_answers_a_stranger(served: Served) -> None:
    _, document = await served.get(URL)
    async with aiohttp.ClientSession() as stranger:
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if not operation["security"]:
                    continue
                url = served.base + re.sub(r"\{\w+\}", "x", path)
                async with stranger.request(method, url, allow_redirects=False) as response:
                    assert (path, response.status) == (path, 303 if path == "/" else 401)


async def test_a_plain_request_for_the_websocket_is_refused_with_a_reason(served: Served) -> None:
    status, refusal = await served.get("/v1/alarms/ws")
    assert (status, refusal["error"]) == (426, "this is a WebSocket. Request the upgrade.")


@pytest.mark.parametrize("body", [{"name": None, "role": "viewer"}, {"name": "ada", "role": {}}, {"name": ["a"]}])
async def test_a_name_must_be_a_text(served: Served, body: object) -> None:
    for path in ("/v1/access/tokens", "/v1/access/links"):
        status, refusal = await served.post(path, body)
        assert (status, "is not a string" in str(refusal["error"])) == (400, True)
    assert (await served.get("/v1/access/tokens"))[1] == {"tokens": []}


async def test_malformed_http_does_not_fill_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.base.rpartition(":")[2]))
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n")
    assert b"400" in await reader.readline()
    writer.close()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("method", "path", "headers", "answer"),
    [
        ("POST", "/v1/session", {"Content-Encoding": "gzip"}, (400, "Content-Encoding")),
        ("POST", "/v1/session", {"Content-Type": "application/json; charset=none"}, (415, "charset")),
        ("POST", "/v1/zones/default/hall/test", {"Content-Encoding": "gzip"}, (401, "not signed in")),
        ("PUT", "/v1/plans/hall", {"Content-Encoding": "gzip", "Content-Type": "image/png"}, (400, "Content-Encoding")),
    ],
)
async def test_an_unreadable_body_is_refused_and_does_not_fill_the_log(
    served: Served, caplog: pytest.LogCaptureFixture, method: str, path: str, headers: dict[str, str],
    answer: tuple[int, str],
) -> None:  # fmt: skip
    shown = {"Content-Type": "application/json", "Content-Length": "7", **headers}
    if "plans" in path:
        shown["Authorization"] = f"Bearer {TOKEN}"
    async with (
        aiohttp.ClientSession() as stranger,
        stranger.request(method, served.base + path, data=b"rubbish", headers=shown) as response,
    ):
        assert (response.status, answer[1] in (await response.json())["error"]) == (answer[0], True)
    await asyncio.sleep(0.1)  # the server ends the request after the answer
    assert caplog.records == []


@pytest.mark.parametrize(
    ("request_line", "kind"), [("POST /v1/session", "application/json"), ("PUT /v1/plans/hall", "image/png")]
)
async def test_a_client_that_leaves_during_a_body_does_not_fill_the_log(
    served: Served, caplog: pytest.LogCaptureFixture, request_line: str, kind: str
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", int(served.base.rpartition(":")[2]))
    shown = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {kind}\r\nContent-Length: 99"
    writer.write(f'{request_line} HTTP/1.1\r\n{shown}\r\n\r\n{{"tok'.encode())
    await asyncio.sleep(0.1)
    writer.close()
    await asyncio.sleep(0.1)
    assert caplog.records == []


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/session"), ("PUT", "/v1/plans/hall")])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP, identity"])
async def test_a_compressed_body_is_refused_with_a_remedy(
    served: Served, method: str, path: str, encoding: str
) -> None:
    kind = "image/png" if "plans" in path else "application/json"
    headers = {"Content-Type": kind, "Content-Encoding": encoding}
    async with served.session.request(
        method, served.base + path, data=gzip.compress(b'{"token": "a"}'), headers=headers
    ) as response:
        sentence = (await response.json())["error"]
    assert (response.status, "Content-Encoding" in sentence, "as it is" in sentence) == (400, True, True)
