from contextlib import suppress

import cv2
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embereye.wire.jpeg.header import Headers, JpegError, read_header


def encoded(width=64, height=48, *options, grey=False):
    rng = np.random.default_rng(1)
    picture = rng.integers(0, 255, (height, width) if grey else (height, width, 3), dtype=np.uint8)
    return cv2.imencode(".jpg", picture, list(options))[1].tobytes()


def with_size(data, width, height):
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + height.to_bytes(2) + width.to_bytes(2) + data[at + 4 :]


def test_the_size_of_a_whole_colour_picture_is_read():
    header = read_header(encoded(64, 48))
    assert (header.width, header.height, header.components) == (64, 48, 3)
    assert header.complete
    assert not header.is_multi_scan


def test_grey_and_progressive_pictures_are_recognised():
    assert read_header(encoded(grey=True)).components == 1
    assert read_header(encoded(64, 48, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)).is_multi_scan


def test_a_truncated_picture_is_not_complete():
    assert not read_header(encoded()[:-2]).complete
    assert not read_header(encoded()[:-300]).complete


def test_padding_behind_the_end_does_not_make_a_picture_incomplete():
    assert read_header(encoded() + b"\0" * 100).complete


def test_an_end_marker_in_an_embedded_thumbnail_does_not_count_as_the_end():
    data = encoded()
    app1 = b"\xff\xe1" + (2 + 4).to_bytes(2) + b"\xff\xd9\xff\xd9"
    cut = data[:2] + app1 + data[2:-2]
    assert not read_header(cut).complete


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a JPEG"),
        (b"<html>404</html>", "not a JPEG"),
        (b"\xff\xd8", "truncated"),
        (b"\xff\xd8\xff\xd9", "truncated"),
        (b"\xff\xd8\x00\x00\x00\x00", "not a JPEG"),
        (b"\xff\xd8\xff\xda\x00\x02\x00\x00\xff\xd9", "not a JPEG"),
        (b"\xff\xd8" + b"\xff\xe0\x00\x02" * 1000, "not a JPEG"),
        (encoded()[:100], "truncated"),
        (with_size(encoded(), 8193, 16), "too large"),
        (with_size(encoded(), 8000, 8000), "too large"),
        (with_size(encoded(), 0, 16), "unsupported JPEG"),
        (encoded().replace(b"\xff\xc0", b"\xff\xc3", 1), "unsupported JPEG"),
    ],
)
def test_pictures_that_must_not_be_decoded_are_refused_with_a_reason(data, reason):
    with pytest.raises(JpegError) as caught:
        read_header(data)
    assert caught.value.reason == reason


def test_a_progressive_picture_with_endless_scans_is_refused():
    data = encoded(64, 48, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    with pytest.raises(JpegError, match="scans"):
        read_header(data[:-2] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x00\x00" * 200 + b"\xff\xd9")


def test_a_sequential_picture_with_endless_scans_is_refused():
    data = encoded(64, 48)
    assert read_header(in_scans(data, 100)).complete
    with pytest.raises(JpegError, match="scans"):
        read_header(in_scans(data, 101))


def in_scans(data, count):
    """A sequential picture of `count` scans, each empty and of one component."""
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + b"\x00"
    return data[: data.index(b"\xff\xda")] + scan * count + b"\xff\xd9"


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda tail: b"\xff\xd8\xff" + tail)))
def test_any_bytes_give_a_header_or_a_jpeg_error(data):
    with suppress(JpegError):
        read_header(data)


@given(st.data())
def test_damage_anywhere_gives_a_header_or_a_jpeg_error(data):
    good = bytearray(encoded(16, 16))
    for _ in range(data.draw(st.integers(1, 8))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with suppress(JpegError):
        read_header(bytes(good[: data.draw(st.integers(0, len(good)))]))


SMALL, LARGE = encoded(64, 48), encoded(96, 64)
STREAM = {
    "small": SMALL,
    "brighter": SMALL[:-40] + bytes(38) + SMALL[-2:],
    "large": LARGE,
    "cut": SMALL[:-100],
    "padded": SMALL + bytes(10),
    "resized": with_size(SMALL, 32, 32),
    "bomb": with_size(SMALL, 65_000, 65_000),
    "progressive": encoded(64, 48, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "scans": in_scans(SMALL, 3),
    "endless": in_scans(SMALL, 101),
    "junk": b"junk",
    "start": SMALL[:4],
}


def outcome(read, data):
    try:
        return read(data)
    except JpegError as error:
        return str(error)


@given(st.lists(st.sampled_from(sorted(STREAM))))
@example(["scans", "endless"])
def test_earlier_pictures_never_change_the_header_of_a_later_one(names):
    headers = Headers()
    assert [outcome(headers.read, STREAM[name]) for name in names] == [
        outcome(read_header, STREAM[name]) for name in names
    ]
