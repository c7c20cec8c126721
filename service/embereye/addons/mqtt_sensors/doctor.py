"""Checks of `embereye doctor`: the broker accepts the login, and lets it read the sensors' topics."""

import asyncio
import uuid
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from embereye.process.lifecycle import UserError
from embereye.process.reason import reason_of
from embereye.units import counted
from embereye.wire.readings.source import SensorSource
from embereye_cli.setup.findings import FAIL, OK, Finding, Fleet, SensorFleetSpec

if TYPE_CHECKING:
    from embereye.addons.mqtt_sensors.broker import Place

SECONDS = 10.0  # for all answers of the broker


def add_arguments(_: ArgumentParser) -> None:
    """Declare no options."""


async def check(_: Namespace, fleets: Iterable[Fleet]) -> list[Finding]:
    """Subscribe at each broker, for a moment, to the topics of its sensors."""
    from embereye.addons.mqtt_sensors.sensors import place_of
    from embereye.wire.readings.templates import mapping_of

    topics: dict[Place, set[str]] = defaultdict(set)
    for fleet in fleets:
        spec = fleet.spec
        if not isinstance(spec, SensorFleetSpec) or spec.mqtt is None:
            continue
        secret = spec.mqtt.credentials_ref.name if spec.mqtt.credentials_ref else ""
        for sensor in spec.sensors:
            if sensor.source and sensor.source.startswith("mqtt:"):
                source = SensorSource(spec.mqtt.broker, sensor.source.removeprefix("mqtt:"), sensor.template or "plain")
                mapping = mapping_of(source.topic, source.template, sensor.fields)
                topics[place_of(source.broker, secret)].update(mapping.topics)
    return [await _check(place, sorted(named)) for place, named in topics.items()]


async def _check(place: "Place", topics: list[str]) -> Finding:
    subject = f"broker {place.address}"
    try:
        import aiomqtt

        from embereye.addons.mqtt_sensors.broker import BrokerError, library_logger, reach, subscribe
    except ImportError:
        return Finding(subject, FAIL, "aiomqtt is not installed", "pip install 'embereye[mqtt]'")
    try:
        async with asyncio.timeout(SECONDS):
            await reach(place)
            user, password = place.login() or (None, None)
            async with aiomqtt.Client(
                place.host, place.port, username=user, password=password, identifier=f"doctor-{uuid.uuid4().hex[:12]}",
                tls_context=place.context(), logger=library_logger, timeout=SECONDS,
            ) as client:  # fmt: skip
                await subscribe(client, topics)
    except TimeoutError:
        return Finding(subject, FAIL, f"no answer within {SECONDS:g} s", "see if the broker runs, and its firewall")
    except (aiomqtt.MqttError, BrokerError, UserError, OSError, ValueError) as error:
        text = reason_of(error)
        return Finding(subject, FAIL, text, "spec.mqtt.broker and its credentialsRef: `embereye credentials set NAME`")
    return Finding(subject, OK, f"accepts the login, and lets it read {counted(len(topics), 'topic')}")
