import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye.camera.decode.image import Decoded, DecodeOrder, PictureDelayedError, TruncatedError, UndecodableError
from embereye.camera.decode.wire import (
    ENCODINGS,
    IMAGE_BYTES,
    MESSAGE_BYTES,
    SHARE_BYTES,
    SLOTS,
    Forget,
    GarbledError,
    Order,
    Outcome,
    Reply,
    Units,
    read_order,
    read_replies,
)
from embereye.camera.scheduling.video import SENT_UNITS
from embereye.camera.scheduling.video_mailbox import VIDEO_SLOTS

BOXES = st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), max_size=5)
POLYGONS = st.lists(st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 2), max_size=4), max_size=3)
WORDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 65_535)
VIDEOS = st.builds(
    Units, st.sampled_from(ENCODINGS), WORDS, st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=40), st.booleans()
)


@st.composite
def orders(draw):
    video = draw(st.none() | VIDEOS)
    side, smoothed = draw(st.integers(0, 65_535)), draw(st.booleans()) if video else True
    how = DecodeOrder(
        draw(st.sampled_from([1, 2, 4, 8])), draw(st.none() | BOXES), side, smoothed, draw(st.none() | BOXES),
        draw(st.none() | BOXES.filter(bool).map(lambda boxes: boxes[0])), draw(st.booleans()),
        tuple(map(tuple, draw(POLYGONS))), tuple(map(tuple, draw(POLYGONS))),
    )  # fmt: skip
    return Order(draw(st.integers(0, SLOTS - 1)), how, draw(WORDS), draw(SIDES), draw(SIDES), video)


@given(st.lists(orders() | st.builds(Forget, WORDS), max_size=4))
def test_a_decoder_reads_the_orders_that_the_pool_sent(sent):
    message, at, received = b"".join(order.pack() for order in sent), 0, []
    while at < len(message):
        order, at = read_order(message, at)
        received.append(order)
    assert received == sent


def test_the_largest_order_fits_into_a_message():
    box = (0.0, 0.0, 1.0, 1.0)
    units = Units("H265", 1, [(1, 1)] * (SENT_UNITS * VIDEO_SLOTS), fresh=True)
    hidden = [[(0.0, 1.0)] * 32] * 8  # as many as a fleet accepts
    masked = [*hidden, *hidden, [(0.0, 1.0)] * 4]  # those for privacy, too, and the region of a self-test
    how = DecodeOrder(1, [box] * 255, close_ups=[box] * 255, detail=box, hidden=hidden, masked=masked)
    order = Order(0, how, 1, 1, 1, units)
    assert len(order.pack()) <= MESSAGE_BYTES


def test_the_pool_reads_the_result_that_a_decoder_wrote():
    memory = memoryview(bytearray(SHARE_BYTES))
    random = np.random.default_rng(1)
    image, detail = (random.integers(0, 255, shape).astype(np.uint8) for shape in ((90, 160, 3), (40, 50, 3)))
    decoded = Decoded(image, b"still", 0.5, 7, b"picture", (1.0, -2.5), detail=detail)
    message = Reply.write(memory, 3, decoded, 1.0).pack()
    message += Reply(4, Outcome.FAILED, 1.0, 2.0, rest=b"no image").pack()
    message += Reply(5, Outcome.TRUNCATED, 1.0, 2.0).pack() + Reply(6, Outcome.DELAYED, 1.0, 2.0).pack()
    whole, failed, truncated, delayed = (reply.result(memory) for reply in read_replies(message))
    assert isinstance(whole, Decoded)
    assert np.array_equal(whole.image, image)
    assert whole.detail is not None
    assert np.array_equal(whole.detail, detail)
    assert (whole.still, whole.picture, whole.unit, whole.logits) == (b"still", b"picture", 7, (1.0, -2.5))
    assert type(failed) is UndecodableError
    assert str(failed) == "no image"
    assert type(truncated) is TruncatedError
    assert type(delayed) is PictureDelayedError


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_stay_within_a_slot(message):
    memory = memoryview(bytearray(SHARE_BYTES))
    try:
        for reply in read_replies(message):
            result = reply.result(memory)
            assert isinstance(result, Exception) or result.image.nbytes <= IMAGE_BYTES
    except GarbledError:
        pass


@pytest.mark.parametrize(
    "reply",
    [
        Reply(SLOTS, Outcome.DELAYED, 1.0, 2.0),
        Reply(0, 9, 1.0, 2.0),
        Reply(0, Outcome.DELAYED, 2.0, 1.0),
        Reply(0, Outcome.DELAYED, 1.0, math.nan),
        Reply(0, Outcome.DELAYED, 1.0, math.inf),
        Reply(0, Outcome.DELAYED, 1.0, 2.0, math.nan),
        Reply(0, Outcome.DECODED, 1.0, 2.0, size=(60_000, 60_000)),
        Reply(0, Outcome.DECODED, 1.0, 2.0, still=IMAGE_BYTES + 1),
        Reply(0, Outcome.DECODED, 1.0, 2.0, detail=(60_000, 60_000)),
        Reply(0, Outcome.DECODED, 1.0, 2.0, rest=b"odd"),
    ],
)
def test_a_reply_that_no_decoder_sends_is_refused(reply):
    with pytest.raises(GarbledError):
        list(read_replies(reply.pack()))


def test_a_reply_that_is_cut_short_is_refused():
    message = Reply(0, Outcome.FAILED, 1.0, 2.0, rest=b"no image").pack()
    for length in range(1, len(message)):
        with pytest.raises(GarbledError):
            list(read_replies(message[:length]))
