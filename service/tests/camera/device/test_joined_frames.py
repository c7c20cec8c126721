"""Frames that are not analysed: they are decoded and counted, and do not change the observations."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from embereye.camera.decode.image import (
    NO_IMAGE,
    Decoded,
    PictureDelayedError,
    UndecodableError,
    add_logits,
    decode_frame,
)
from embereye.camera.decode.pool import ContextLostError
from embereye.camera.decode.video import VideoDecoder
from embereye.camera.device.camera import OVERDUE_NS, CameraDevice, ShardLinks
from embereye.camera.scheduling.mailbox import Tally
from embereye.camera.scheduling.turn import Turn
from embereye.sim.scenes.scene import Room
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

from ..conftest import camera_settings, noisy_jpeg
from ..decode.test_video_pool import access_units

START_NS = 1_000 * SECOND
STEP = SECOND // 15


class Hall:
    """A camera at its shard; each of its turns runs when `serve` is called."""

    def __init__(self, decode=None, analysed=lambda *_: None, settings=None, candidate_side=lambda _: 0):
        self.now, self.queued, self.turns, self.seen = START_NS, False, [], []
        links = ShardLinks(
            submit=self.submit, report=lambda _, seen: self.seen.append(seen), analysed=analysed,
            candidate_side=candidate_side, clock=lambda: self.now,
        )  # fmt: skip
        settings = settings or camera_settings(detection={"detectors": ["motion", "flame", "smoke"]})
        self.camera = CameraDevice(Device(id="hall", fps_target=15, fps_min=1), settings, links)
        self.camera.arrivals.video.slots = 3
        self.decoder, self.decode = VideoDecoder("H264"), decode or self.decode_video

    def submit(self, camera):
        self.queued = True

    def decode_video(self, order, frame):
        return self.decoder.decode(order, [(unit.data, unit.number) for unit in frame.units])

    def show(self, data, wait=STEP):
        self.now += wait
        self.camera.offer_frame(data, self.now)
        self.serve()

    def serve(self):
        while self.queued:
            self.queued = False
            if frame := self.camera.next_frame():
                order = self.camera.decode_order(frame)
                turn = Turn(frame, 0.0, 0.0)
                try:
                    turn.result = self.decode(order, frame)
                except Exception as error:
                    turn.result = error
                self.turns.append(
                    SimpleNamespace(
                        units=len(getattr(frame, "units", ())), image=order.image, picture_side=order.picture_side
                    )
                )
                self.camera.finish_turn(turn)

    @property
    def ledger(self):
        return self.camera.arrivals.mailbox.ledger


@pytest.fixture
def hall():
    return Hall()


def test_unanalysed_pictures_of_a_calm_video_are_decoded_with_the_next_one(hall):
    for unit in access_units(count=45, gop=45):
        hall.show(unit)
    assert sum(turn.units for turn in hall.turns) in {44, 45}
    assert sum(turn.units == 2 for turn in hall.turns) > 10
    hall.now += 2 * OVERDUE_NS
    hall.camera.submit_overdue(hall.now)
    hall.serve()
    assert hall.ledger.analysed == hall.ledger.offered == 45


def test_a_picture_without_a_successor_is_decoded_after_a_while(hall):
    units = iter(access_units(count=45, gop=45))
    while len(hall.turns) < 10 or hall.camera.arrivals.mailbox.waiting is None:
        hall.show(next(units))
    hall.now += OVERDUE_NS
    hall.camera.submit_overdue(hall.now)
    assert not hall.queued
    hall.now += 1
    hall.camera.submit_overdue(hall.now)
    hall.serve()
    assert hall.camera.arrivals.mailbox.waiting is None
    assert (hall.turns[-1].units, hall.turns[-1].image) == (1, False)
    assert hall.ledger.analysed == hall.ledger.offered


def test_a_key_frame_is_not_decoded_together_with_earlier_pictures(hall):
    for unit in access_units(count=60, gop=4):
        hall.show(unit)
    hall.now += 2 * OVERDUE_NS
    hall.camera.submit_overdue(hall.now)
    hall.serve()
    assert {turn.units for turn in hall.turns} == {1, 2}
    assert hall.ledger.analysed == 60


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (UndecodableError("no"), "undecodable"),
        (PictureDelayedError(), "delayed by the decoder"),
        (ContextLostError(), "decoder lost"),
        (RuntimeError("no"), "analysis failed"),
    ],
)
def test_joined_pictures_share_the_outcome_of_the_last_one(hall, error, counted):
    def decode(order, frame):
        if frame.joined:
            raise error
        return hall.decode_video(order, frame)

    hall.decode = decode
    for unit in access_units(count=45, gop=45):
        hall.show(unit)
        if set(hall.ledger.rejected + hall.ledger.shed) & {counted}:
            break
    ledger = hall.ledger
    assert (ledger.rejected + ledger.shed)[counted] == 2
    waiting = hall.camera.arrivals.mailbox.waiting is not None
    assert ledger.offered == ledger.analysed + sum((ledger.rejected + ledger.shed).values()) + waiting


def test_while_the_rate_is_cut_no_picture_waits_for_the_next_one(hall):
    hall.camera.arrivals.video.slots = 1
    for unit in access_units(count=30, gop=30):
        hall.show(unit)
    assert {turn.units for turn in hall.turns} == {1}
    assert hall.ledger.analysed == 30


def test_a_wanted_picture_is_made_from_the_next_frame_at_once(hall):
    units = iter(access_units(count=45, gop=45))
    while len(hall.turns) < 10 or hall.camera.arrivals.mailbox.waiting is not None:
        hall.show(next(units))
    hall.camera.picture_wanted = True
    while hall.camera.picture_wanted:
        count = len(hall.turns)
        hall.show(next(units))
        assert len(hall.turns) == count + 1


@pytest.mark.parametrize(
    "error", [ContextLostError(), PictureDelayedError(), UndecodableError("no"), RuntimeError("no")]
)
def test_a_wanted_picture_is_requested_until_it_is_made(hall, error):
    def decode(order, frame):
        if order.picture_side and not failed:
            failed.append(order)
            raise error
        return hall.decode_video(order, frame)

    failed, made, hall.decode = [], set(), decode
    for number, unit in enumerate(access_units(count=24, gop=4)):
        hall.camera.picture_wanted |= number == 4
        hall.show(unit)
        made |= {hall.camera.picture}
    assert len(failed) == len(made - {None}) == 1
    assert not hall.camera.picture_wanted


def seen_by(pictures, *, skipped):
    """Return a camera that was shown JPEGs at 15/s; without `skipped` its detectors get every picture."""

    def decode(order, frame):
        if not skipped and not order.image:
            order = replace(order, scale=4, image=True)
        return add_logits(decode_frame(order, frame.data, frame.header.width, frame.header.height), order, None)

    hall = Hall(decode)
    for picture in pictures:
        hall.now += STEP
        hall.camera.push_frame(picture, hall.now, Tally())
        hall.serve()
    return hall


@pytest.mark.parametrize("scene", ["quiet", "walk", "fire"])
def test_skipping_pictures_does_not_change_the_observations(scene):
    room = Room(640, 480, 1)
    pictures = [*room.quiet(30)[:], *(room.fire(8.0, 60, 15.0) if scene == "fire" else getattr(room, scene)(60))[:]]
    spared, whole = seen_by(pictures, skipped=True), seen_by(pictures, skipped=False)
    assert spared.seen == whole.seen
    assert spared.ledger.analysed == len(pictures)
    assert sum(not turn.image for turn in spared.turns) > 10
    if scene == "fire":
        assert any(seen.urgent for seen in spared.seen)


def test_undecodable_pictures_are_noticed_by_the_next_analysis():
    jpeg = noisy_jpeg(size=(480, 640))
    hall = seen_by([jpeg] * 20 + [jpeg[:200] + b"\xff\xd9"] * 6, skipped=True)
    assert hall.ledger.analysed in {20, 21}
    assert sum(hall.ledger.rejected.values()) == 26 - hall.ledger.analysed


def test_a_picture_without_an_image_repeats_the_last_findings(hall):
    for unit in access_units(count=8):
        hall.show(unit)
    frame = SimpleNamespace(time_ns=hall.now + 5 * STEP, received_ns=hall.now, lost=(), hurried=False)
    before = hall.seen[-1]
    analysed = hall.camera.analyser.analyse_picture(frame, Decoded(NO_IMAGE, b"", 0.0))
    assert analysed.observation.findings == before.findings
    assert analysed.observation.time_ns == frame.time_ns
    assert np.isfinite(analysed.cpu_seconds)
