"""Messages of a real Mosquitto, whose bytes arrive in pieces: each is handled whole, in order, and acknowledged."""

import asyncio
import random
from typing import Any

import aiomqtt
import pytest
from harness.eventually import eventually
from harness.need import MOSQUITTO
from harness.servers.certificates import SiteAuthority
from harness.servers.mosquitto import Mosquitto
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from embereye.addons.mqtt_sensors.deliveries import Deliveries
from embereye.process.tasks import beside
from embereye.process.tls.client import ClientTls

pytestmark = [pytest.mark.needs(MOSQUITTO), pytest.mark.timeout(60)]
COUNT = 300  # more than the broker sends without acknowledgement
VERSIONS = {4: aiomqtt.ProtocolVersion.V311, 5: aiomqtt.ProtocolVersion.V5}


@pytest.fixture
def broker(tmp_path):
    mosquitto = Mosquitto(tmp_path / "mosquitto")
    mosquitto.start()
    yield mosquitto
    mosquitto.stop()


class Reader:
    """A session at the broker that notes its messages."""

    def __init__(self, port, version=5, **options):
        session: dict[str, Any] = {"clean_session": False}
        if version == 5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 60
            session = {"clean_start": False, "properties": properties}
        protocol = VERSIONS[version]
        self.client = aiomqtt.Client("127.0.0.1", port, identifier="reader", protocol=protocol, **session, **options)
        self.received = []
        Deliveries(self.client, lambda topic, payload, *, retained: self.received.append((topic, payload, retained)))

    async def listen(self):
        """Run the connection."""
        async for _ in self.client.messages:
            pass


async def publish(broker, payloads, *, version=5, retain=False, **options):
    """Publish `payloads` at the topic "one/sensor", with properties in MQTT 5."""
    properties = None
    if version == 5:
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [("maker", "x" * 200)]
        properties.MessageExpiryInterval = 100
    async with aiomqtt.Client("127.0.0.1", broker.port, protocol=VERSIONS[version], **options) as client:
        for payload in payloads:
            await client.publish("one/sensor", payload, qos=1, retain=retain, properties=properties)


async def in_pieces(reader, writer):
    """Forward what `reader` gets to `writer` in small pieces."""
    dice = random.Random(1)
    while data := await reader.read(4096):
        while data:
            size = dice.randint(1, 90)
            piece, data = data[:size], data[size:]
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)


@pytest.mark.parametrize("version", [4, 5])
async def test_messages_in_pieces_arrive_whole_in_order_and_are_acknowledged(broker, version):
    async def forward(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", broker.port)
        async with beside(in_pieces(far_reader, writer), name="back"):
            await in_pieces(reader, far_writer)
        far_writer.close()
        writer.close()

    payloads = [b"%d " % number + b"y" * (number * 7 % 900) for number in range(COUNT)]
    async with await asyncio.start_server(forward, "127.0.0.1", 0) as proxy:
        reader = Reader(proxy.sockets[0].getsockname()[1], version)
        async with reader.client, beside(reader.listen(), name="listen"):
            await reader.client.subscribe("one/sensor", 1)
            await publish(broker, payloads, version=version)
            await eventually(lambda: len(reader.received) >= COUNT)
            await reader.client.subscribe("another", 1)  # its answer comes after the acknowledgements are known
    assert [payload for _, payload, _ in reader.received] == payloads
    assert {(topic, retained) for topic, _, retained in reader.received} == {("one/sensor", False)}
    again = Reader(broker.port, version)
    async with again.client, beside(again.listen(), name="listen"):
        await publish(broker, [b"last"], version=version)
        await eventually(lambda: again.received)
    assert [payload for _, payload, _ in again.received] == [b"last"]


@pytest.mark.parametrize("version", [4, 5])
async def test_a_retained_message_is_marked_and_one_of_many_kilobytes_is_whole(broker, version):
    large = bytes(range(256)) * 400
    await publish(broker, [large], version=version, retain=True)
    reader = Reader(broker.port, version)
    async with reader.client, beside(reader.listen(), name="listen"):
        await reader.client.subscribe("one/sensor", 1)
        await eventually(lambda: reader.received)
    assert reader.received == [("one/sensor", large, True)]


async def test_messages_arrive_over_tls(tmp_path):
    authority = SiteAuthority(tmp_path / "authority")
    broker = Mosquitto(
        tmp_path / "mosquitto", certificates=authority.issue("broker", alternatives=["127.0.0.1"]).folder
    )
    broker.start()
    context = ClientTls.in_folder(authority.issue("shard").folder).context()
    reader = Reader(broker.port, tls_context=context)
    payloads = [bytes([number]) * (number * 97) for number in range(200)]
    try:
        async with reader.client, beside(reader.listen(), name="listen"):
            await reader.client.subscribe("one/sensor", 1)
            await publish(broker, payloads, tls_context=context)
            await eventually(lambda: len(reader.received) >= len(payloads))
        assert [payload for _, payload, _ in reader.received] == payloads
    finally:
        broker.stop()
