import json
from pathlib import Path

import cv2
import numpy as np
import pytest

import embereye
from embereye.wire.rtp.depacketize import Depacketizer
from embereye.wire.rtp.packetize import Packetizer, read_scan
from embereye.wire.rtp.receiver import DEADLINE_NS

FILES = sorted((Path(embereye.__file__).parent / "vectors" / "rtp_jpeg").glob("*.json"))
VECTORS = [pytest.param(json.loads(path.read_text()), id=path.stem) for path in FILES]


def pixels(jpeg):
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)


def test_the_vectors_exist():
    assert len(VECTORS) >= 13


@pytest.mark.parametrize("vector", VECTORS)
def test_the_sender_makes_exactly_these_packets(vector):
    sender = vector["sender"]
    packetizer = Packetizer(sender["ssrc"], sender["sequence"], max_payload=sender["max_payload"])
    made = []
    for picture in vector["pictures"]:
        options = {name: picture[name] for name in ("quality", "with_tables") if name in picture}
        made += packetizer.packetize(read_scan(bytes.fromhex(picture["jpeg"])), picture["timestamp"], **options)
    assert [packet.hex() for packet in made] == vector["packets"]


@pytest.mark.parametrize("vector", VECTORS)
def test_the_receiver_makes_exactly_these_pictures(vector):
    receiver, pictures = Depacketizer(size=tuple(vector["receiver"]["size"])), []
    for number in vector["deliver"]:
        pictures += receiver.feed(memoryview(bytes.fromhex(vector["packets"][number])), 0)
    pictures += receiver.poll(DEADLINE_NS)
    sent = {picture["timestamp"]: bytes.fromhex(picture["jpeg"]) for picture in vector["pictures"]}
    assert [(p.timestamp, p.usable, [list(box) for box in p.lost]) for p in pictures] == [
        (expected["timestamp"], expected["usable"], expected["lost"]) for expected in vector["expected"]
    ]
    for picture in (picture for picture in pictures if picture.usable):
        seen, original = pixels(picture.data), pixels(sent[picture.timestamp])
        height, width = original.shape[:2]
        intact = np.ones((height, width), bool)
        for x, y, w, h in picture.lost:
            intact[round(y * height) : round((y + h) * height), round(x * width) : round((x + w) * width)] = False
        assert intact.mean() > 0.5
        assert (seen == original)[intact].all()
