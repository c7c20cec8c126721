"""GET /v1/actuators, and its description."""

import json
from pathlib import Path

import aiohttp
from jsonschema import Draft202012Validator
from prometheus_client import CollectorRegistry

from embereye.addons.control.actuators import Actuators
from embereye.addons.control.http import ActuatorRoutes, actuator_schema
from embereye.addons.control.pan_tilt import PanTiltHead
from embereye.addons.control.session import ControlSession
from embereye.hub.addon import Parts
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.process.http.server import bound_port, serve_http
from embereye.v1.control_pb2 import ControlRequest, Handshake

TOKEN = "an-admins-token-of-forty-characters-or-so"


async def test_connected_actuators_are_listed_as_described(tmp_path: Path) -> None:
    store, actuators = StoreThreads(tmp_path), Actuators()
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    parts = Parts(routes=[ActuatorRoutes(actuators)], schemas={"Actuator": actuator_schema()})
    runner = await serve_http(Api(hub, addons=[parts]).app(CollectorRegistry()), "127.0.0.1", 0)
    shake = Handshake(version=2, name="head", actuator=PanTiltHead(2_000_000).actuator)
    who = Principal("ada", Role.OPERATOR, "ada")
    ControlSession(actuators, who, lambda _: None, lambda _: None).receive(ControlRequest(handshake=shake))
    base = f"http://127.0.0.1:{bound_port(runner)}/v1/"
    async with aiohttp.ClientSession(base, headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        listed, document = [
            json.loads(await (await session.get(path)).text()) for path in ("actuators", "openapi.json")
        ]
    await runner.cleanup()
    await store.close()
    assert [(actuator["name"], actuator["by"]) for actuator in listed["actuators"]] == [("head", "ada")]
    operation = document["paths"]["/v1/actuators"]["get"]
    assert operation["x-embereye-role"] == "viewer"
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(listed)
