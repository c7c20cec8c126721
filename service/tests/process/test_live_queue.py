"""A slow reader of live pictures gets the newest one, or a video that it can decode."""

from embereye.process.live_queue import LATE_SECONDS, MAX_WAITING, LivePicture, LiveQueue

KEY, OTHER, JPEG = b"\0\0\0\x10ftyp", b"\0\0\0\x10moof", b"\xff\xd8"


def take_all(queue: LiveQueue) -> list[bytes]:
    taken = []
    while picture := queue.take_oldest():
        taken.append(picture.data)
    return taken


def offer(queue: LiveQueue, *pieces: bytes, now: float = 0.0) -> None:
    for piece in pieces:
        queue.offer(LivePicture(piece, 1), now)


def test_a_picture_replaces_the_one_that_waits() -> None:
    queue = LiveQueue()
    offer(queue, JPEG + b"1", JPEG + b"2")
    assert take_all(queue) == [JPEG + b"2"]
    assert queue.dropped == 1


def test_a_thermal_picture_replaces_the_one_that_waits() -> None:
    queue = LiveQueue()
    offer(queue, b"T\0 1", b"T\0 2")
    assert take_all(queue) == [b"T\0 2"]
    assert queue.dropped == 1


def test_a_video_begins_at_a_key_frame_and_misses_nothing() -> None:
    queue = LiveQueue()
    offer(queue, OTHER, KEY, OTHER + b"1", KEY, OTHER + b"2")
    assert take_all(queue) == [KEY, OTHER + b"1", KEY, OTHER + b"2"]


def test_a_reader_that_fell_behind_continues_at_the_next_key_frame() -> None:
    queue = LiveQueue()
    offer(queue, KEY, OTHER)
    offer(queue, OTHER, now=LATE_SECONDS + 1)
    assert take_all(queue) == []
    offer(queue, OTHER, KEY + b"2", OTHER + b"2", now=LATE_SECONDS + 2)
    assert take_all(queue) == [KEY + b"2", OTHER + b"2"]
    assert queue.dropped == 4


def test_what_waits_is_bounded() -> None:
    queue = LiveQueue()
    offer(queue, KEY, *[OTHER + bytes(MAX_WAITING // 3)] * 9)
    assert sum(map(len, take_all(queue))) <= MAX_WAITING * 4 / 3 + 100


def test_after_a_missing_fragment_the_video_continues_at_the_next_key_frame() -> None:
    queue = LiveQueue()
    offer(queue, KEY)
    queue.skip_group()
    offer(queue, OTHER, KEY + b"2")
    assert take_all(queue) == [KEY, KEY + b"2"]


def test_fragments_that_wait_are_replaced_by_a_picture() -> None:
    queue = LiveQueue()
    offer(queue, KEY, OTHER, JPEG, OTHER)
    assert take_all(queue) == [JPEG]
