"""Draw the pictures of the RTP/JPEG conformance corpus and write it: python make_vectors.py DIR."""

import json
import random
import sys
from pathlib import Path

import cv2
import numpy as np

from embereye.wire.rtp.depacketize import Depacketizer
from embereye.wire.rtp.packetize import Packetizer, read_scan
from embereye.wire.rtp.receiver import DEADLINE_NS

SAMPLING = {"4:2:2": 0x211111, "4:2:0": 0x221111}


def picture(number, width=96, height=64, *, quality=50, sampling="4:2:0", interval=0):
    y, x = np.mgrid[:height, :width]
    drawn = np.stack([x * 2 + 30 * number, y * 3, (x + y) % 200], -1) % 256
    drawn = np.clip(drawn + np.random.default_rng(number).normal(0, 8, drawn.shape), 0, 255).astype(np.uint8)
    cv2.circle(drawn, (width // 3 + 5 * number, height // 2), height // 4, (30, 110, 240), -1)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLING[sampling]]
    options += [cv2.IMWRITE_JPEG_RST_INTERVAL, interval] if interval else []
    return cv2.imencode(".jpg", drawn, options)[1].tobytes()


def vector(about, *sent, sequence=1000, first=90_000, step=6_000, deliver=None, size=(0, 0), max_payload=200):
    """`sent`: (jpeg, options of packetize); `deliver` chooses and orders packets, given those of each picture."""
    sender = Packetizer(0x0EB1_E0E5, sequence, max_payload=max_payload)
    packets, groups, pictures = [], [], []
    for number, (jpeg, options) in enumerate(sent):
        timestamp = (first + step * number) & 0xFFFF_FFFF
        made = sender.packetize(read_scan(jpeg), timestamp, **options)
        groups.append(list(range(len(packets), len(packets) + len(made))))
        packets += made
        pictures.append({"timestamp": timestamp, **options, "jpeg": jpeg.hex()})
    order = deliver(groups) if deliver else [number for group in groups for number in group]
    return {
        "about": about,
        "sender": {"ssrc": sender.ssrc, "sequence": sequence, "max_payload": max_payload},
        "pictures": pictures,
        "packets": [packet.hex() for packet in packets],
        "receiver": {"size": list(size)},
        "deliver": order,
        "expected": received(packets, order, size),
    }


def received(packets, order, size):
    receiver, pictures = Depacketizer(size=size), []
    for number in order:
        pictures += receiver.feed(memoryview(packets[number]), 0)
    pictures += receiver.poll(DEADLINE_NS)
    return [{"timestamp": p.timestamp, "usable": p.usable, "lost": [list(box) for box in p.lost]} for p in pictures]


def flat(groups):
    return [number for group in groups for number in group]


def shuffled(groups):
    chance = random.Random(3)
    numbers = flat(groups)
    return numbers[:1] + sorted(numbers[1:], key=lambda n: n + chance.uniform(0, 4))


def vectors():
    plain, other = picture(0), picture(1)
    rows = {"interval": 6}
    yield "plain", vector("Q 1 to 99, types 0 and 1, no restart markers", (plain, {}),
                          (picture(1, quality=1, sampling="4:2:2"), {}), (picture(2, quality=99), {}))  # fmt: skip
    yield "wrap", vector("sequence numbers and timestamps wrap", *[(picture(n), {}) for n in range(3)],
                         sequence=65_533, first=0xFFFF_F000)  # fmt: skip
    yield "restart", vector("types 64 and 65: a restart header on every packet, intervals of 6 and 4 MCUs",
                            (picture(0, **rows), {}),
                            (picture(1, sampling="4:2:2", interval=4), {}))  # fmt: skip
    yield "cached-tables", vector(
        "Q 128 and 129 keep their tables, a table length of 0 means those",
        (picture(0, quality=20), {"quality": 128}), (picture(1, quality=90), {"quality": 129}),
        (picture(2, quality=20), {"quality": 128, "with_tables": False}),
        (picture(3, quality=90), {"quality": 129, "with_tables": False}),
    )  # fmt: skip
    yield "changed-tables", vector(
        "tables of Q 128 that come again replace those before",
        (picture(0, quality=20), {"quality": 128}), (picture(1, quality=90), {"quality": 128}),
        (picture(2, quality=90), {"quality": 128, "with_tables": False}),
    )  # fmt: skip
    yield "uncached-255", vector(
        "tables of Q 255 are of one picture only: the second one cannot be decoded",
        (picture(0, quality=100), {}), (picture(0, quality=100), {"with_tables": False}), (plain, {}),
    )  # fmt: skip
    yield "over-2040", vector("a width of 0: 2,056 pixels, known from outside", (picture(0, 2056, 16), {}),
                              size=(2056, 16), max_payload=1400)  # fmt: skip
    yield "loss-restart", vector(
        "one packet lost: its restart intervals are missing, everything else is exact",
        (picture(0, 96, 128, **rows), {}), (other, {}),
        deliver=lambda groups: [n for n in flat(groups) if n != groups[0][3]],
    )  # fmt: skip
    yield "loss-tail", vector(
        "the last packet lost", (picture(0, 96, 128, **rows), {}), (other, {}),
        deliver=lambda groups: [n for n in flat(groups) if n != groups[0][-1]],
    )  # fmt: skip
    yield "loss-head", vector(
        "the first packet lost: Q 1 to 99 needs none of what it said", (other, {}), (picture(0, 96, 128, **rows), {}),
        deliver=lambda groups: [n for n in flat(groups) if n != groups[1][0]],
    )  # fmt: skip
    yield "loss-plain", vector(
        "one packet lost without restart markers: the picture is not usable", (plain, {}), (other, {}),
        deliver=lambda groups: [n for n in flat(groups) if n != groups[0][2]],
    )  # fmt: skip
    yield "reorder", vector("packets overtake each other", *[(picture(n), {}) for n in range(4)], deliver=shuffled)
    yield "duplicates", vector("every packet comes twice", (plain, {}), (other, {}),
                               deliver=lambda groups: [n for n in flat(groups) for _ in range(2)])  # fmt: skip


def main(folder):
    for name, content in vectors():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
