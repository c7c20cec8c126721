"""Frames, reports and clips for tests."""

from embereye.camera.clips.ring import ClipFrame
from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Term

from ..conftest import noisy_jpeg

START = 1_795_000_000 * SECOND
PICTURES = [noisy_jpeg(number) for number in range(8)]
SIZE = (128, 96)


def frame(number, rate=10):
    return ClipFrame(START + number * SECOND // rate, PICTURES[number % len(PICTURES)], *SIZE)


def report(level=Level.ALARM, episode="e1", device="gate"):
    return EvidenceItem(
        episode=episode, device=device, zone="yard", kind=Kind.FLAME.wire, level=level, score=0.61,
        why=[Term(name="flame.flicker", value=0.41, threshold=0.25, unit="1")],
    )  # fmt: skip


def about(device="gate", **fields):
    return Clip(fleet="default/cameras/yard", device=device, zone="yard", kind=Kind.FLAME.wire, episode="e1", **fields)


def make_clip(spool, count=20, device="gate", start=0):
    recording = spool.begin(about(device), frame(start))
    for number in range(start + 1, start + count):
        recording.append(frame(number))
    return spool.finish(recording)
