"""While a camera is calm only some frames are decoded; what happens between two of them is analysed all the same."""

from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embereye.camera.decode.image import NOT_DECODED, Decoded, PictureDelayedError, UndecodableError, decode_frame
from embereye.camera.decode.pool import ContextLostError
from embereye.camera.device.calm_mode import CalmMode
from embereye.camera.scheduling.mailbox import Mailbox, Tally
from embereye.camera.scheduling.picture_aside import PictureAside
from embereye.camera.scheduling.set_aside import CALM
from embereye.camera.scheduling.video_mailbox import VideoMailbox
from embereye.units import SECOND
from embereye.wire.video.access_unit import AccessUnit

from ..conftest import camera_settings
from ..decode.test_video_pool import access_units
from .test_joined_frames import Hall

STEP = SECOND // 10
GROUP = 10  # pictures from one key frame to the next
SETTINGS = camera_settings(detection={"detectors": ["motion"]}, decoding={"whileCalm": "keyFrames"})
ROOM = np.random.default_rng(1).integers(60, 120, (90, 160, 1), np.uint8).repeat(3, 2)
NOISE = np.random.default_rng(2).integers(0, 3, (17, 90, 160, 1), np.uint8)
CALM_AFTER = 60  # pictures without any change, at most


def unit(number, *, key=False, damaged="", reference=True):
    return AccessUnit(
        b"%d" % number, number, (640, 360), key, reference, damaged, damages_following=bool(damaged) and reference
    )


class Scene(Hall):
    """A camera with a made-up decoder: a picture is grey, or has a lighter part from `changes_at` on.

    The decoder fails if a unit does not follow the one that it refers to.
    """

    def __init__(self, changes_at=1_000_000):
        super().__init__(self.decode_made_up, settings=SETTINGS)
        self.changes_at, self.number, self.failure = changes_at, 0, None
        self.decoded, self.analysed, self.before = [], [], None
        self.following = {}  # by unit, the one that it refers to
        self.latest = None  # the latest unit that others refer to

    def decode_made_up(self, order, frame):
        if self.failure:
            error, self.failure = self.failure, None
            if isinstance(error, ContextLostError):
                self.before = None
                self.camera.lose_context()
            raise error
        for coded in frame.units:
            number = int(coded.data)
            assert coded.key or self.before == self.following[number], f"{number} does not follow {self.before}"
            if number in self.references:
                self.before = number
        self.decoded.append(number)
        image = ROOM + NOISE[number % len(NOISE)]
        if number >= self.changes_at:
            image[30:40, 60 : 70 + number % 7] = 200
        return Decoded(image if order.image else image[:0, :0], b"", 0.001, unit=coded.number)

    @property
    def references(self):
        return {number for number in self.following.values() if number is not None} | {self.latest}

    def offer(self, *, key=None, damaged="", reference=True, serve=True):
        number, self.number = self.number, self.number + 1
        key = number % GROUP == 0 if key is None else key
        self.following[number] = self.latest
        if reference:
            self.latest = number
        self.now += STEP
        self.camera.offer_frame(unit(number, key=key, damaged=damaged, reference=reference), self.now)
        if serve:
            self.serve()

    def run(self, count):
        for _ in range(count):
            self.offer()

    @property
    def calm(self):
        return self.camera.arrivals.calm

    @property
    def times(self):
        return [seen.time_ns for seen in self.seen]


@pytest.fixture
def scene():
    scene = Scene()
    scene.run(CALM_AFTER + 10)
    assert scene.calm.is_calm
    return scene


def test_only_key_frames_of_a_calm_video_are_decoded(scene):
    scene.decoded.clear()
    scene.run(50)
    assert len(scene.decoded) == 5
    assert all(number % GROUP == 0 for number in scene.decoded)
    assert scene.ledger.shed[CALM] > 0
    assert scene.ledger.waiting == scene.camera.arrivals.video.aside.count
    assert scene.camera.reason(scene.now) == ""


def test_all_pictures_are_decoded_unless_the_fleet_wants_key_frames_only():
    scene = Scene()
    scene.camera.configure(scene.camera.device, camera_settings())
    scene.run(CALM_AFTER + 40)
    assert not scene.calm.is_calm
    assert scene.ledger.analysed == scene.ledger.offered


def test_a_change_between_two_key_frames_is_analysed_picture_by_picture(scene):
    before, scene.changes_at = len(scene.seen), scene.number + 3
    following_key = -(-scene.changes_at // GROUP) * GROUP
    scene.run(following_key + 6 - scene.number)
    assert not scene.calm.is_calm
    analysed = scene.times[before:]
    assert all(later - earlier == STEP for earlier, later in pairwise(analysed[-14:]))
    assert scene.ledger.waiting == 0


def test_the_calm_returns_once_nothing_changes_any_more(scene):
    scene.changes_at = scene.number + 3
    scene.run(30)
    assert not scene.calm.is_calm
    scene.changes_at = 1_000_000
    scene.run(400)
    assert scene.calm.is_calm


def test_a_viewer_ends_the_calm_at_once(scene):
    scene.run(4)
    analysed = scene.ledger.analysed
    scene.camera._links.live._asked = {"hall": [frozenset({"H264"})]}
    scene.camera.submit_overdue(scene.now)
    scene.serve()
    assert not scene.calm.is_calm
    assert scene.ledger.waiting == 0
    assert scene.ledger.analysed > analysed


def test_a_late_key_frame_ends_the_calm_before_the_deadline(scene):
    while scene.number % GROUP:
        scene.offer()
    for _ in range(14):
        scene.offer(key=False)
        scene.camera.submit_overdue(scene.now)
        scene.serve()
        assert scene.camera.reason(scene.now) == ""
    for _ in range(20):
        scene.offer(key=False)
        scene.camera.submit_overdue(scene.now)
        scene.serve()
        assert scene.camera.reason(scene.now) == ""
    assert not scene.calm.is_calm


@pytest.mark.parametrize("error", [UndecodableError("no"), ContextLostError(), PictureDelayedError()])
def test_a_check_that_fails_ends_the_calm_and_nothing_set_aside_is_lost(scene, error):
    while scene.number % GROUP:
        scene.offer()
    analysed = scene.ledger.analysed
    scene.failure = error
    scene.offer()
    assert not scene.calm.is_calm
    scene.run(GROUP - 1)
    assert scene.ledger.analysed >= analysed + GROUP - 1
    assert scene.ledger.waiting == 0


def test_a_lost_key_frame_leaves_the_others_in_order(scene):
    while scene.number % GROUP:
        scene.offer()
    scene.offer(key=True, damaged="a part of it was lost")
    for _ in range(GROUP - 1):
        scene.offer(damaged="it refers to it")
    scene.run(GROUP)
    assert all(earlier < later for earlier, later in pairwise(scene.times))
    assert scene.calm.is_calm


@pytest.mark.parametrize(
    ("interval", "fps_min", "weak", "why"),
    [
        (3.0, 1.0, False, "2 s at most"),
        (1.0, 5.0, False, "fps.min"),
        (1.0, 1.0, True, "IDR"),
        (1.0, 1.0, False, ""),
    ],
)
def test_a_camera_that_cannot_be_calm_says_why(interval, fps_min, weak, why):
    mailbox = Mailbox()
    calm = CalmMode(VideoMailbox(mailbox), PictureAside(mailbox))
    calm.is_wanted, calm.least_rate, now = True, fps_min, SECOND
    coded = AccessUnit(b"", 0, (640, 360), key=True, weak_key=weak)
    for _ in range(5):
        calm.note_unit(coded, now)
        now += int(interval * SECOND)
    assert why in calm.hindrance(now)
    assert bool(why) == bool(calm.hindrance(now))


def test_a_video_that_is_always_decoded_late_says_so():
    scene = Scene()
    ordinary = scene.decode_made_up
    scene.decode = lambda order, frame: replace(ordinary(order, frame), unit=0)
    scene.run(CALM_AFTER + 20)
    assert not scene.calm.is_calm
    assert "B frames" in scene.calm.hindrance(scene.now)


def test_a_camera_whose_size_changes_is_no_longer_calm(scene):
    scene.run(3)
    while scene.number % GROUP:
        scene.offer()
    ordinary = scene.decode_made_up

    def larger(order, frame):
        decoded = ordinary(order, frame)
        return Decoded(np.vstack([ROOM, ROOM[:30]]), b"", 0.001, unit=decoded.unit)

    scene.decode = larger
    scene.run(2)
    assert not scene.calm.is_calm
    assert scene.ledger.waiting == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["unit"] * 12 + ["group"] * 4 + ["key", "lost", "unreferenced", "change", "still", "viewer", "late"]
            + ["waits", "undecodable", "context", "overload"]
        ),
        min_size=5, max_size=60,
    )
)  # fmt: skip
def test_each_picture_is_analysed_at_most_once_and_in_order(events):
    scene = Scene()
    scene.run(CALM_AFTER + 10)
    for event in events:
        _happen(scene, event)
    scene.run(2 * GROUP)
    assert all(earlier < later for earlier, later in pairwise(scene.times))
    ledger, aside = scene.ledger, scene.camera.arrivals.video.aside
    assert ledger.waiting == aside.count + scene.camera.arrivals.mailbox.count
    assert ledger.offered == scene.number


def _happen(scene, event):
    if event in {"unit", "key", "lost", "unreferenced", "waits"}:
        damaged = "a part of it was lost" if event == "lost" else ""
        is_next = scene.camera.arrivals.video._group is not None
        damaged = damaged or ("" if is_next or scene.number % GROUP == 0 or event == "key" else "it refers to it")
        scene.offer(
            key=True if event == "key" else None,
            damaged=damaged,
            reference=event != "unreferenced" or scene.number % GROUP == 0,
            serve=event != "waits",
        )
    elif event == "group":
        scene.run(GROUP - scene.number % GROUP)
    elif event in {"undecodable", "context"}:
        scene.failure = UndecodableError("no") if event == "undecodable" else ContextLostError()
    elif event == "overload":
        scene.camera.arrivals.video.slots = 1 if scene.camera.arrivals.video.slots == 3 else 3
    elif event == "viewer":
        scene.calm.note_busy(scene.now)
    elif event == "late":
        scene.now += SECOND
        scene.camera.submit_overdue(scene.now)
        scene.serve()
    else:
        scene.changes_at = scene.number if event == "change" else 1_000_000


class Pictures(Hall):
    """A camera that pushes JPEGs of a room, with a lighter part from `changes_at` on."""

    def __init__(self, changes_at=1_000_000):
        super().__init__(self.decode_picture, settings=SETTINGS)
        self.changes_at, self.number, self.tally = changes_at, 0, Tally()

    def decode_picture(self, order, frame):
        return decode_frame(order, frame.data, frame.header.width, frame.header.height) if order.image else NOT_DECODED

    def run(self, count):
        for _ in range(count):
            image = ROOM + NOISE[self.number % len(NOISE)]
            if self.number >= self.changes_at:
                image[30:40, 60 : 70 + self.number % 7] = 200
            self.number += 1
            self.now += STEP
            self.camera.push_frame(cv2.imencode(".jpg", image)[1].tobytes(), self.now, self.tally)
            self.serve()


def test_two_pictures_a_second_of_a_calm_camera_are_decoded_and_all_around_a_change():
    pictures = Pictures()
    pictures.run(CALM_AFTER + 10)
    assert pictures.camera.arrivals.calm.is_calm
    analysed = pictures.ledger.analysed
    pictures.run(50)
    assert pictures.ledger.analysed - analysed in {9, 10, 11}
    assert "calm: 2 pictures/s" in pictures.camera.message(pictures.now).state
    pictures.changes_at = pictures.number + 2
    pictures.run(20)
    assert not pictures.camera.arrivals.calm.is_calm
    times = [seen.time_ns for seen in pictures.seen]
    assert all(later - earlier == STEP for earlier, later in pairwise(times[-20:]))
    assert pictures.ledger.waiting == 0
    assert (
        pictures.ledger.offered
        == pictures.ledger.analysed + pictures.ledger.shed[CALM]
        == pictures.tally.analysed + (pictures.tally.shed)
    )


def test_a_camera_that_sends_a_video_instead_of_pictures_leaves_none_behind():
    pictures = Pictures()
    pictures.run(CALM_AFTER + 13)
    pictures.camera.offer_frame(access_units(count=1)[0], pictures.now + STEP)
    assert pictures.camera.arrivals.aside_count == 0


def test_a_real_video_is_decoded_again_from_the_key_frame_before_a_change():
    def draw(number, width, height, _):
        picture = np.random.default_rng(1).integers(60, 120, (height, width, 1), np.uint8).repeat(3, 2)
        if number >= 94:
            picture[80:120, 100 : 140 + number % 5] = 220
        return picture

    hall = Hall(settings=SETTINGS)
    for coded in access_units(count=110, gop=GROUP, draw=draw):
        hall.show(coded, STEP)
    times = [(seen.time_ns - hall.seen[0].time_ns) // STEP for seen in hall.seen]
    assert 70 in times
    assert not {72, 85} & set(times)
    assert times[-16:] == [*range(times[-16], times[-16] + 16)]
    assert times[-1] >= 108
