"""The switch of a zone's profile at a real Mosquitto."""

import json
from collections.abc import Callable
from pathlib import Path

import aiomqtt
import pytest
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.need import MOSQUITTO
from harness.servers.mosquitto import Mosquitto
from harness.stored import Stored

from embereye.process.tasks import beside

from .test_process import embereye, open_zone

pytestmark = pytest.mark.needs(MOSQUITTO)
FILE = "profiles: [{name: oven, zones: hall, limits: {smoke: 20}, longest: 2h, confirmEvery: 7d, mqtt: true}]"
SWITCH, ZONE = "embereye/set/profile/default/hall", "embereye/zones/default/hall"


async def test_a_message_switches_a_zones_profile(tmp_path: Path, make_hub: Callable[..., HubProcess]) -> None:
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    (tmp_path / "profiles.yaml").write_text(FILE)
    hub = make_hub(
        Stored(tmp_path),
        "--profiles",
        str(tmp_path / "profiles.yaml"),
        "--mqtt-broker",
        f"mqtt://127.0.0.1:{broker.port}",
    )
    last: dict[str, bytes] = {}

    async def follow(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            last[message.topic.value] = message.payload

    def profile() -> str:
        return str(json.loads(last.get(ZONE) or b"{}").get("profile", ""))

    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        await client.subscribe("#", 1)
        async with beside(follow(client), name="read"):
            await client.publish(SWITCH, "oven", qos=1, retain=True)
            hub.start()
            await hub.ready()
            await open_zone(hub)
            await eventually(lambda: profile() == "normal", goal="the zone is published")
            assert (await embereye(hub, "profile", "confirm", "--hours", "oven"))[0] == 0
            (select,) = [json.loads(text) for topic, text in last.items() if "/select/" in topic]
            assert (select["options"], select["command_topic"]) == (["normal", "oven"], SWITCH)
            assert profile() == "normal", "a retained message has no age"
            await client.publish(SWITCH, "oven", qos=1)
            await eventually(lambda: profile() == "oven", goal="the profile begins")
            _, listed = await embereye(hub, "profile", "list", "--json")
            (permit,) = json.loads(listed)["permits"]
            assert (permit["who"], permit["reason"]) == ("MQTT", "by the switch")
            await client.publish(SWITCH, "normal", qos=1)
            await eventually(lambda: profile() == "normal", goal="the profile ends")
    broker.stop()
