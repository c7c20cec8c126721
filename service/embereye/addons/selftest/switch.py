"""Switch a lamp or a heater: by a message to an MQTT broker, a coil of a Modbus server, or an actuator, confirmed.

A message and a coil have a connection each time, because they are used rarely.
"""

import asyncio
import logging

import aiomqtt
from pymodbus.client import AsyncModbusTcpClient
from pymodbus.exceptions import ModbusException

from embereye.addons.selftest.options import ActuatorSwitch, ModbusSwitch, SelfTestOptions, Switch
from embereye.hub.mqtt.options import MqttOptions
from embereye.hub.outputs import OutputError, Outputs
from embereye.process.connecting import connect_any
from embereye.process.lifecycle import UserError
from embereye.process.mqtt_client import MqttClient
from embereye.process.reason import reason_of
from embereye.process.tasks import raise_if_cancelled

SECONDS = 5.0  # to switch
library_logger = logging.getLogger(f"{__name__}.library")
library_logger.setLevel(logging.CRITICAL)


class SwitchError(Exception):
    """The actuator was not switched; the text says why."""


async def switch(options: SelfTestOptions, outputs: Outputs | None, which: Switch, *, on: bool) -> None:
    """Switch a lamp or a heater; SwitchError if that is not confirmed within SECONDS."""
    try:
        async with asyncio.timeout(SECONDS):
            if isinstance(which, ModbusSwitch):
                await _write_coil(which, on=on)
            elif isinstance(which, ActuatorSwitch):
                if outputs is None:
                    raise SwitchError("this hub has no actuators: the add-on control is not installed")
                await outputs.switch(which.name, which.output, on=on)
            else:
                assert options.broker
                await _publish(options.broker, which.topic, which.on if on else which.off)
    except TimeoutError:
        raise SwitchError(f"no answer within {SECONDS:g} s") from None
    except (aiomqtt.MqttError, ModbusException, OutputError, UserError, OSError, ValueError) as error:
        raise SwitchError(reason_of(error)) from error
    finally:
        raise_if_cancelled()


async def _publish(broker: MqttOptions, topic: str, payload: str) -> None:
    # The library dials in a thread that cannot be cancelled: try the address before.
    (await connect_any(broker.host, broker.port)).close()
    user, password = broker.login() or (None, None)
    client = MqttClient(
        broker.host, broker.port, username=user, password=password, timeout=SECONDS,
        tls_context=broker.tls_context(), logger=library_logger,
    )  # fmt: skip
    async with client:
        await client.publish(topic, payload, qos=1)


async def _write_coil(which: ModbusSwitch, *, on: bool) -> None:
    client = AsyncModbusTcpClient(which.host, port=which.port, timeout=SECONDS, retries=0, reconnect_delay=0)
    try:
        if not await client.connect():
            raise SwitchError("it cannot be reached")
        answer = await client.write_coil(which.coil, on, device_id=which.unit)
        if answer.isError():
            raise SwitchError(f"it refuses coil {which.coil} (Modbus exception {getattr(answer, 'exception_code', 0)})")
    finally:
        client.close()
