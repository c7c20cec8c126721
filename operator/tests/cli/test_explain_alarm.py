"""Replays of an alarm: its stored signs and frames, decided once more."""

import re

import pytest

from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.lifecycle import UserError
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.sim.scenes.fire import Fire
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Device, Mask
from embereye.wire.matroska import Muxer
from embereye_cli.explain.alarm import replay_clip, replay_zone, sentences
from embereye_cli.explain.masks import CameraMasks, masks_in_manifest

NOW = 1_700_000_000 * SECOND
EVERYTHING = Mask(x=[0, 1, 1, 0], y=[0, 0, 1, 1])


def flame(level: Level = Level.ALARM) -> EvidenceItem:
    return EvidenceItem(
        id="one", episode="e", fleet="default/cameras/yard", device="c1", zone="hall", kind=Kind.FLAME.wire,
        sense=Sense.CAMERA.wire, level=level.wire, since_ns=NOW, until_ns=NOW,
    )  # fmt: skip


def decided(state: ZoneState, item: EvidenceItem) -> AlarmEvent:
    return AlarmEvent(
        time_ns=NOW, namespace="default", zone="hall", alarm="a", type=AlarmEvent.TYPE_STATE, state=state.wire,
        contributions=[item],
    )  # fmt: skip


async def filmed(*fires: Fire) -> tuple[Clip, bytes]:
    """A camera's clip: ten seconds of a simulated room, frame by frame."""
    cameras = await prepare([CameraSpec("c1", "hall")], fps=10, size=(320, 240), seed=3, fires=fires)
    film, muxer = cameras.films["c1"], Muxer(320, 240, "c1", NOW)
    data = muxer.begin()
    for number in range(100):
        data += muxer.frame(film.frame(number / 10), NOW + number * SECOND // 10)
    clip = Clip(media=Clip.MEDIA_CLIP, device="c1", kind=Kind.FLAME.wire, episode="e", from_ns=NOW, frames=100)
    return clip, data


async def test_replayed_frames_of_a_fire_raise_an_alarm_and_those_of_a_quiet_room_none() -> None:
    events = [decided(ZoneState.ALARM, flame())]
    again = replay_clip(*await filmed(Fire(1, 60, zone="hall")), events)
    assert (again.same, again.why.partition(": ")[0]) == (True, "flame alarm now, alarm then")
    assert re.search(r"flame\.\S+ [0-9.]+ % of [0-9.]+ %", again.why)
    otherwise = replay_clip(*await filmed(), events)
    assert (otherwise.same, otherwise.why.partition(": ")[0]) == (False, "flame clear now, alarm then")


async def test_a_replay_ignores_what_the_masks_of_its_camera_cover_and_says_so() -> None:
    events, (clip, content) = [decided(ZoneState.ALARM, flame())], await filmed(Fire(1, 60, zone="hall"))
    unknown = replay_clip(clip, content, events)
    assert (unknown.same, unknown.subject) == (True, "the detectors on 100 frames of c1 (its masks are not known)")
    none = replay_clip(clip, content, events, masks=CameraMasks((), "as declared now"))
    assert (none.same, none.subject) == (True, "the detectors on 100 frames of c1 (no masks, as declared now)")
    masked = replay_clip(clip, content, events, masks=CameraMasks((EVERYTHING,), "as declared now"))
    assert (masked.same, masked.subject) == (False, "the detectors on 100 frames of c1 (1 mask, as declared now)")
    assert masked.why.partition(": ")[0] == "flame clear now, alarm then"


def test_masks_of_a_manifest_replace_those_of_a_saved_incident() -> None:
    saved = [{"x": [0.0, 0.5, 0.5], "y": [0.0, 0.0, 0.5]}]
    devices = {("default/cameras/yard", "gate"): Device(masks=[EVERYTHING], privacy_masks=[EVERYTHING])}
    words = {}
    for name in ("gate", "door"):
        masks = masks_in_manifest(devices)({"fleet": "default/cameras/yard", "device": name, "masks": saved})
        assert masks
        words[name] = masks.words
    assert words == {"gate": "2 masks, of the manifest", "door": "1 mask, as declared when it was saved"}
    assert masks_in_manifest(devices)({"fleet": "default/cameras/yard", "device": "door"}) is None


@pytest.mark.parametrize("media", [Clip.MEDIA_CLIP, Clip.MEDIA_VIDEO])
def test_a_clip_that_cannot_be_read_is_named(media: Clip.Media.ValueType) -> None:
    with pytest.raises(UserError, match="the clip of c1 cannot be replayed: "):
        replay_clip(Clip(media=media, device="c1"), b"RIFF of another program", [])


def test_a_replay_with_another_decision_is_reported() -> None:
    assert replay_zone([decided(ZoneState.ALARM, flame())]).same
    otherwise = replay_zone([decided(ZoneState.ALARM, flame(Level.PRE_ALARM))])
    assert (otherwise.same, otherwise.why.partition(",")[0]) == (False, "pre-alarm")


def test_terms_are_printed_with_their_units() -> None:
    item = flame()
    item.why.add(name="flame.flicker", value=50.66, threshold=33, unit="%")
    item.why.add(name="temperature.over_normal", value=11.2, threshold=10, unit="K")
    item.why.add(name="flame.colour", value=0.998, threshold=0.35, unit="1")
    alarm = {
        "alarm": "a", "namespace": "default", "zone": "hall", "worst": "ZONE_STATE_ALARM", "beganNs": NOW,
        "endedNs": "0",
    }  # fmt: skip
    text = "\n".join(sentences(alarm, [decided(ZoneState.ALARM, item)], []))
    assert "flame.flicker 50.7 % of 33 %, temperature.over_normal 11.2 K of 10 K, flame.colour 1 of 0.35" in text
