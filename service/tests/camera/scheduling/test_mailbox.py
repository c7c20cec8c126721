import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye.camera.scheduling.mailbox import MAX_BYTES, Mailbox, Tally
from embereye.units import WHOLE

from ..conftest import noisy_jpeg

JPEG = noisy_jpeg()
KINDS = {
    "whole": JPEG,
    "cut": JPEG[:-100],
    "page": b"<html></html>",
    "bomb": JPEG[: JPEG.index(b"\xff\xc0") + 5] + b"\xff\xff\xff\xff" + JPEG[JPEG.index(b"\xff\xc0") + 9 :],
}


def test_the_latest_frame_replaces_the_previous_one_as_superseded():
    box, tally = Mailbox(), Tally()
    box.offer_frame(JPEG, 1, 1, tally=tally)
    box.offer_frame(JPEG, 2, 2, tally=tally)
    frame = box.take_frame()
    assert frame is not None
    assert frame.time_ns == 2
    assert box.take_frame() is None
    assert box.ledger.shed == {"superseded": 1}
    box.count_analysed(frame)
    assert (tally.analysed, tally.shed) == (1, 1)


@pytest.mark.parametrize(("kind", "reason"), [("cut", "truncated"), ("page", "not a JPEG"), ("bomb", "too large")])
def test_an_unusable_frame_is_rejected_and_does_not_replace_the_waiting_one(kind, reason):
    box = Mailbox()
    box.offer_frame(JPEG, 1, 1)
    assert box.offer_frame(KINDS[kind], 2, 2, lost=(WHOLE,) if kind == "cut" else ())
    assert box.ledger.rejected == {reason: 1}
    assert box.take_frame().time_ns == 1


def test_a_frame_of_too_many_bytes_is_rejected():
    box = Mailbox()
    assert "too large" in box.offer_frame(JPEG + bytes(MAX_BYTES), 1, 1)


def test_frames_above_the_target_rate_are_shed_unless_fire_is_suspected():
    box = Mailbox()
    box.rate_controller.configure(10, 5)
    for number in range(10):
        box.offer_frame(JPEG, number, 1_000_000_000 + number * 50_000_000)
    assert box.ledger.shed["above target rate"] == 5
    for number in range(10, 20):
        box.offer_frame(JPEG, number, 1_000_000_000 + number * 50_000_000, boosted=True)
    assert box.ledger.shed["above target rate"] == 5


def test_delayed_frames_that_arrive_at_once_are_no_overload():
    box = Mailbox()
    box.rate_controller.configure(15, 1)
    for number in range(10):
        box.offer_frame(JPEG, number, 1_000_000_000 + number, boosted=number > 0)
    assert box.ledger.shed == {"superseded": 9}
    assert not box.waiting.hurried


def test_frames_are_hurried_while_the_rate_is_cut():
    box = Mailbox()
    box.rate_controller.configure(15, 1)
    box.rate_controller.grant(7.0)
    box.offer_frame(JPEG, 1, 1_000_000_000)
    assert box.waiting.hurried


@given(st.lists(st.sampled_from([*KINDS, "take", "fail", "discard", "refuse"])), st.sampled_from([0.0, 5.0]))
def test_the_ledger_counts_every_offered_frame(steps, fps_target):
    box, tally, offered = Mailbox(), Tally(), 0
    box.rate_controller.configure(fps_target, 1.0)
    for now, step in enumerate(steps):
        if step in KINDS:
            offered += 1
            box.offer_frame(KINDS[step], now, now * 70_000_000, tally=tally)
        elif step == "discard":
            box.discard_waiting("handed over")
        elif step == "refuse":
            offered += 1
            box.refuse_frame(tally)
        elif frame := box.take_frame():
            if step == "take":
                box.count_analysed(frame)
            else:
                box.count_failed(frame, "undecodable", "", now)
        assert box.ledger.offered == offered
        assert box.ledger.waiting == (box.waiting is not None)
        assert tally.analysed + tally.shed + box.ledger.waiting == offered


def test_each_frame_is_taken_once_or_superseded_with_concurrent_takers():
    cameras, takers, number = 16, 16, 50_000
    boxes = [Mailbox() for _ in range(cameras)]
    taken: list[list[int]] = [[] for _ in range(takers)]
    over = threading.Event()

    def take_frames(taken_here: list[int]) -> None:
        dice = random.Random(len(taken))
        while not over.is_set():
            frames = (dice.choice(boxes).take_frame() for _ in range(64))
            taken_here.extend(frame.time_ns for frame in frames if frame)

    threads = [threading.Thread(target=take_frames, args=(taken_here,)) for taken_here in taken]
    for thread in threads:
        thread.start()
    for turn in range(number):
        boxes[turn % cameras].offer_frame(JPEG, turn, turn)
    over.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    left = [frame.time_ns for box in boxes if (frame := box.take_frame())]
    everything = [*left, *(time_ns for taken_here in taken for time_ns in taken_here)]
    assert len(everything) == len(set(everything))
    assert sum(box.ledger.offered for box in boxes) == number
    assert sum(box.ledger.shed["superseded"] for box in boxes) == number - len(everything)
    assert any(taken)
