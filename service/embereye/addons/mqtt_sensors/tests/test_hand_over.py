"""The benchmark of a hand-over, with few detectors: it counts what was lost, and a shard that never begins loses."""

import pytest
from harness.need import MOSQUITTO
from harness.servers.mosquitto import Mosquitto

from embereye.addons.mqtt_sensors.bench import hand_over

pytestmark = [pytest.mark.needs(MOSQUITTO), pytest.mark.timeout(120)]


@pytest.fixture
def port(tmp_path):
    mosquitto = Mosquitto(tmp_path / "mosquitto")
    mosquitto.start()
    yield mosquitto.port
    mosquitto.stop()


async def test_detectors_that_move_while_they_publish_lose_no_reading(port):
    seen = await hand_over.measure(port, devices=40)
    assert (seen.published, seen.lost, seen.rejected) == (40 * hand_over.ROUNDS, 0, 0)


async def test_readings_that_no_shard_analyses_are_counted_as_lost(port, monkeypatch):
    publish = hand_over._publish

    async def publish_less(client, devices, number):
        await publish(client, devices - 5 * (number == 3), number)

    monkeypatch.setattr(hand_over, "_publish", publish_less)
    monkeypatch.setattr(hand_over, "ANSWER_SECONDS", 3.0)
    assert (await hand_over.measure(port, devices=10)).lost == 5
