"""Addresses that a route may not call are refused, from whichever thread and by whichever protocol."""

import asyncio
import socket
import threading
from ipaddress import ip_network
from pathlib import Path

import aiomqtt
import pytest
from harness.eventually import eventually
from harness.need import MOSQUITTO
from harness.servers.mosquitto import Mosquitto
from harness.stored import Stored

from embereye.addons.notify.channel import attempting, install
from embereye.addons.notify.options import Route
from embereye.hub.webhooks.guard import RefusedAddressError

from .hub_of import options, route, running

OTHER = "127.0.0.2"  # replaces a server elsewhere
ONLY_OTHER = (ip_network(OTHER),)


def test_a_thread_that_an_attempt_starts_may_call_no_more_than_the_attempt() -> None:
    install()
    with socket.create_server(("127.0.0.1", 0)) as server:
        errors: list[Exception | None] = []

        def connect() -> None:
            try:
                socket.create_connection(server.getsockname(), timeout=5).close()
            except OSError as error:
                errors.append(error)
            else:
                errors.append(None)

        def nested() -> None:
            inner = threading.Thread(target=connect)
            inner.start()
            inner.join()

        with attempting(Route("phone", allow=ONLY_OTHER)) as call:
            for target in (connect, nested):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()
        assert [type(error) for error in errors] == [RefusedAddressError] * 2
        assert "is this machine's address" in call.refused
        outside = threading.Thread(target=connect)
        outside.start()
        outside.join()
        assert errors[-1] is None, "other threads are not affected"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_datagram_is_refused_like_a_connection(host: str) -> None:
    install()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, attempting(Route("log")) as call:
        with pytest.raises(RefusedAddressError):
            sender.sendto(b"<34>fire", (host, 9))
        assert "is this machine's address" in call.refused


@pytest.mark.needs(MOSQUITTO)
async def test_an_alarm_by_mqtt_needs_no_address_but_the_brokers(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "broker", host=OTHER)
    broker.start()
    try:
        url = f"mqtt://{OTHER}:{broker.port}/alarms?qos=1"
        texts = list[str]()

        async def listen() -> None:
            async with aiomqtt.Client(OTHER, broker.port) as client:
                await client.subscribe("alarms")
                listening.set()
                async for message in client.messages:
                    texts.append(str(message.payload, "utf-8") if isinstance(message.payload, bytes) else "")

        listening = asyncio.Event()
        task = asyncio.create_task(listen())
        await listening.wait()
        wanted = options(route("mqtt", url, allow=ONLY_OTHER), route("refused", url, allow=()))
        async with running(Stored(tmp_path), wanted) as site:
            site.ignite()
            await eventually(lambda: texts)
            why = await eventually(lambda: site.notifier.outlets["refused"].failing.why)
        task.cancel()
    finally:
        broker.stop()
    assert "heat 61.3 °C" in texts[0]
    assert f"{OTHER} is this machine's address" in why
