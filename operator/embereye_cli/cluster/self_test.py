"""Prove in a cluster that a fire becomes an alarm: declare a sensor, simulate a fire, wait for the hub's alarm.

It can run in production: it uses a fleet and a zone with names that only it uses, and removes them.
"""

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from lightkube import AsyncClient

from embereye.process import lifecycle
from embereye.process.addresses import address_option
from embereye.process.lifecycle import CheckFailedError, UserError
from embereye.process.tasks import beside
from embereye.units import split_address
from embereye.v1.alarms_pb2 import ActionRequest, AlarmEvent, SubscribeRequest, ZoneState
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import SensorReading, SerialNumber
from embereye_cli.cluster.kubectl_options import add_target_arguments, target_of
from embereye_cli.hub.connection import HubConnection, add_hub_options, hub_connection
from embereye_cli.hub.errors import hub_error
from embereye_cli.values import check_ranges
from embereye_operator.api.shared import API_VERSION
from embereye_operator.runtime.kubernetes.client.answers import tolerating
from embereye_operator.runtime.kubernetes.client.client import Target, connected
from embereye_operator.runtime.kubernetes.client.resources import FLEETS

if TYPE_CHECKING:
    from embereye.v1.alarms_pb2_grpc import AlarmsAsyncStub

NAME = "embereye-self-test"  # name of the fleet, of its only sensor and of its zone
LABEL = "embereye.dev/self-test"
TEXT_PORT = 9001
PERIOD = 0.5  # seconds between readings
ALARM_SECONDS = 10.0  # longest time from the fire's first byte to the alarm
QUIET_SECONDS = 60.0  # longest time until the signs have ended
QUIET = SensorReading(NAME, smoke_adc=280, flame_adc=1300, gas_adc=400)
FIRE = SensorReading(NAME, smoke_adc=3600, flame_adc=1300, gas_adc=400)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    add_hub_options(parser, json=False)
    parser.add_argument(
        "--labels",
        default="",
        metavar="KEY=VALUE,…",
        help="labels of the fleet, if the operator has a --fleet-selector",
    )
    parser.add_argument(
        "--template",
        type=_template,
        default={},
        metavar="JSON",
        help="spec.template of the fleet, if its pods need limits or tolerations",
    )
    parser.add_argument(
        "--target",
        default="",
        metavar="HOST:PORT",
        help="address that the sensor sends to; default: the fleet's Service, which only pods reach",
    )
    parser.add_argument(
        "--within",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="longest time until the fleet is covered (%(default)g)",
    )


def _template(text: str) -> dict[str, Any]:
    try:
        template = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(template, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not an object")
    return template


def run(arguments: argparse.Namespace) -> int:
    """Declare a sensor, simulate a fire, wait for the alarm, clean up; return 0 if all of it succeeds."""
    labels = dict(part.partition("=")[::2] for part in arguments.labels.split(",") if part)
    if arguments.target:
        address_option("--target", arguments.target)
    check_ranges(arguments, within=(0, 86_400))

    async def main(stop: asyncio.Event) -> int:
        test = _SelfTest(
            hub_connection(arguments), target_of(arguments), labels, arguments.template, arguments.target,
            arguments.within,
        )  # fmt: skip
        async with beside(test.run(), name="self-test") as testing, beside(stop.wait(), name="stop") as stopping:
            await asyncio.wait((testing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not testing.done():
                return 130
            await testing
        return 0

    return lifecycle.run(main)


@dataclass
class _Sensor:
    """A text device: sends what a microcontroller would send, and reconnects when its connection breaks."""

    address: str
    reading: SensorReading = QUIET
    written: asyncio.Event = field(default_factory=asyncio.Event)  # the current reading was sent
    refused: str = "not dialled yet"

    async def send(self) -> None:
        """Send until cancelled."""
        host, port = split_address(self.address)
        while True:
            try:
                async with asyncio.timeout(2):
                    _, writer = await asyncio.open_connection(host, port)
            except (OSError, TimeoutError) as error:
                self.refused = str(error) or "no answer"
                await asyncio.sleep(PERIOD)
                continue
            try:
                writer.write(encode(SerialNumber(NAME)))
                while True:
                    writer.write(encode(self.reading))
                    await writer.drain()
                    self.refused = ""
                    self.written.set()
                    await asyncio.sleep(PERIOD)
            except OSError as error:
                self.refused = str(error)
            finally:
                writer.transport.abort()

    def set_reading(self, reading: SensorReading) -> None:
        """Send `reading` from now on."""
        self.reading = reading
        self.written.clear()


@dataclass(eq=False)
class _SelfTest:
    hub: HubConnection
    target: Target
    labels: dict[str, str]
    template: dict[str, Any]
    way_in: str
    within: float
    began: float = field(default_factory=time.monotonic)

    async def run(self) -> None:
        async with connected(self.target) as client, self.hub.dial() as link:
            alarms = AlarmsStub(link)
            try:
                async with self._fleet(client):
                    await self._burn(client, alarms)
            except grpc.aio.AioRpcError as error:
                presented = bool(self.hub.token)
                raise hub_error(error, self.hub.hub, "embereye self-test", presented=presented) from error
        self._report("done, everything is removed: fires at sensors become alarms here")

    def _report(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    @contextlib.asynccontextmanager
    async def _fleet(self, client: AsyncClient) -> AsyncIterator[None]:
        """Declare a fleet of one sensor, and remove it at the end."""
        kind, namespace = FLEETS["SensorFleet"], client.namespace
        fleet = kind(
            apiVersion=API_VERSION,
            kind="SensorFleet",
            metadata={"name": NAME, "namespace": namespace, "labels": {LABEL: "true", **self.labels}},
            spec={
                "sensors": [{"id": NAME, "zone": NAME}],
                "shards": 1,
                "autoscaling": {"mode": "none"},
                "template": self.template,
            },
        )
        await self._remove(client)  # left by an interrupted test
        try:
            await client.create(fleet)
            self._report(f"declared: SensorFleet {namespace}/{NAME}")
            yield
        finally:
            await asyncio.shield(self._remove(client))

    async def _remove(self, client: AsyncClient) -> None:
        with tolerating(404):
            fleet = await client.get(FLEETS["SensorFleet"], NAME, namespace=client.namespace)
            if LABEL not in fleet["metadata"].get("labels", {}):
                raise UserError(f"SensorFleet {client.namespace}/{NAME} does not belong to a self-test. Rename it.")
            await client.delete(FLEETS["SensorFleet"], NAME, namespace=client.namespace)
            while True:
                await client.get(FLEETS["SensorFleet"], NAME, namespace=client.namespace)
                await asyncio.sleep(0.2)

    async def _burn(self, client: AsyncClient, alarms: "AlarmsAsyncStub") -> None:
        namespace = client.namespace
        sensor = _Sensor(self.way_in or f"{NAME}-sensors.{namespace}.svc:{TEXT_PORT}")
        async with beside(sensor.send(), name="sensor"):
            await self._covered(client, sensor)
            call = alarms.Subscribe(SubscribeRequest(live_only=True, zones=[NAME]))
            try:
                await call.initial_metadata()
                sensor.set_reading(FIRE)
                await sensor.written.wait()
                burning = time.monotonic()
                self._report(f"fire at {NAME}")
                await self._await_state(call, namespace, ZoneState.ZONE_STATE_ALARM, ALARM_SECONDS)
                self._report(f"alarm at the hub {(time.monotonic() - burning) * 1000:.0f} ms later")
                sensor.set_reading(QUIET)
                note = ActionRequest(namespace=namespace, zone=NAME, who="self-test", note="a fire that was not one")
                await alarms.Acknowledge(note, timeout=5)
                await self._await_state(call, namespace, ZoneState.ZONE_STATE_RESTORED, QUIET_SECONDS)
                await alarms.Reset(note, timeout=5)
                self._report("acknowledged, restored and reset")
            finally:
                call.cancel()

    async def _covered(self, client: AsyncClient, sensor: _Sensor) -> None:
        """Wait until the operator reports that the sensor is watched; CheckFailedError with the obstacles."""
        deadline = time.monotonic() + self.within
        while True:
            fleet: Any = await client.get(FLEETS["SensorFleet"], NAME, namespace=client.namespace)
            conditions = {entry["type"]: entry for entry in fleet.get("status", {}).get("conditions", [])}
            if conditions.get("Covered", {}).get("status") == "True":
                self._report("covered: a shard runs and receives the sensor")
                return
            if time.monotonic() > deadline:
                obstacles = "; ".join(
                    f"{name}: {entry.get('message') or entry['reason']}"
                    for name, entry in conditions.items()
                    if entry["status"] == {"Covered": "False", "Ready": "False", "Degraded": "True"}.get(name)
                )
                raise CheckFailedError(
                    f"the sensor was not covered within {self.within:g} s: "
                    f"{obstacles or 'no operator watches ' + json.dumps(client.namespace)}"
                    + (f"; {sensor.address}: {sensor.refused}" if sensor.refused else "")
                )
            await asyncio.sleep(0.5)

    async def _await_state(self, call: Any, namespace: str, state: "ZoneState.ValueType", seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                async for event in call:
                    if (event.namespace, event.type, event.state) == (namespace, AlarmEvent.TYPE_STATE, state):
                        return
        except TimeoutError:
            pass
        word = ZoneState.Name(state).removeprefix("ZONE_STATE_").lower()
        raise CheckFailedError(
            f"the hub at {self.hub.hub} did not report {word} for zone {namespace}/{NAME} within {seconds:g} s"
        )
