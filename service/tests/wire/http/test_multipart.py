from itertools import pairwise

import cv2
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embereye.wire.http.multipart import MAX_HEADERS, MAX_STEPS, MultipartParser, boundary_of


def picture(seed=0):
    noise = np.random.default_rng(seed).integers(0, 255, (16, 24, 3), dtype=np.uint8)
    return cv2.imencode(".jpg", noise)[1].tobytes()


A, B = picture(1), picture(2)
TYPE = "multipart/x-mixed-replace; boundary=frame"


def parse(data, content_type=TYPE, cuts=(), **options):
    parser = MultipartParser(content_type, **options)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [part for start, end in pairwise(edges) for part in parser.feed(data[start:end])]


def stream(parts, delimiter=b"--frame", newline=b"\r\n", headers=(b"Content-Type: image/jpeg",)):
    blocks = [delimiter + newline + b"".join(h + newline for h in headers) + newline + p + newline for p in parts]
    return b"".join(blocks)


def sized(parts, *lengths):
    """The stream of `parts` with a Content-Length each: true, unless `lengths` has another."""
    stated = [*lengths, *map(len, parts[len(lengths) :])]
    return b"".join(stream([p], headers=(b"content-length: %d" % n,)) for p, n in zip(parts, stated, strict=True))


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/x-mixed-replace; boundary=frame", b"frame"),
        ("multipart/x-mixed-replace;boundary=--x", b"x"),
        ('multipart/x-mixed-replace; boundary="a b"; charset=x', b"a b"),
        ("multipart/x-mixed-replace; BOUNDARY = frame", b"frame"),
        ("multipart/x-mixed-replace", b""),
        ("image/jpeg", b""),
    ],
)
def test_a_boundary_is_read_from_every_spelling(content_type, boundary):
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        pytest.param(TYPE, stream([A, B]), id="as in the standard"),
        pytest.param("m/x;boundary=--x", stream([A, B], b"--x"), id="boundary=--x, sent as it is"),
        pytest.param("m/x;boundary=--x", stream([A, B], b"----x"), id="boundary=--x, with two more dashes"),
        pytest.param('m/x;boundary="q q"', stream([A, B], b"--q q"), id="quoted boundary"),
        pytest.param("m/x", stream([A, B], b"--whatever"), id="no boundary announced"),
        pytest.param(TYPE, stream([A, B])[9:], id="no first boundary"),
        pytest.param(TYPE, A + b"\r\n" + stream([B]), id="a picture at once"),
        pytest.param(TYPE, stream([A, B], newline=b"\n"), id="LF only"),
        pytest.param(TYPE, stream([A, B], headers=(b"Content-Length: 3",)), id="Content-Length too small"),
        pytest.param(TYPE, stream([A, B], headers=(b"Content-Length: 999999",)), id="Content-Length too large"),
        pytest.param(TYPE, sized([A, B]), id="Content-Length that is true"),
        pytest.param(TYPE, stream([A, B], headers=()), id="no headers"),
        pytest.param(TYPE, b"junk\r\n\r\n" + stream([A]) + b"more\n\xff\n" + stream([B]), id="junk between parts"),
        pytest.param(TYPE, stream([b"\r\n" + A, A[:0], B]), id="empty lines and empty parts"),
        pytest.param(TYPE, stream([A]) + b"--frame--\r\n" + stream([B]), id="a closing boundary in the middle"),
    ],
)
def test_pictures_are_found_in_every_dialect(content_type, data):
    for size in (len(data), 1, 7):
        cuts = range(size, len(data), size)
        assert parse(data, content_type, cuts) == [A, B]


def test_a_picture_is_returned_before_the_next_boundary_arrives():
    assert MultipartParser(TYPE).feed(stream([A])[:-2]) == [A]


def test_a_picture_truncated_by_the_next_boundary_is_returned_as_received():
    assert parse(stream([A[:-40], B])) == [A[:-40], B]


@pytest.mark.parametrize("stated", [3, len(B) - 1, len(B) + 1, len(B) + 40, 10**7, 10**12])
def test_a_length_that_becomes_wrong_loses_no_picture(stated):
    data = sized([A, A], len(A), len(A)) + sized([B, A, B], stated)
    data += stream([A] * 20)  # enough data for a length that is too large
    assert parse(data)[:5] == [A, A, B, A, B]
    assert parse(data, cuts=range(11, len(data), 11))[:5] == [A, A, B, A, B]


def test_a_truncated_picture_with_a_larger_length_is_returned_as_received():
    data = sized([A, A[:-40], B, A], len(A), len(A))
    assert parse(data) == parse(data, cuts=range(1, len(data))) == [A, A[:-40], B, A]


def test_a_picture_of_trusted_length_is_returned_with_its_last_byte():
    data = sized([A, B])
    parser = MultipartParser(TYPE)
    assert parser.feed(data[:-3]) == [A]
    assert parser.feed(data[-3:-2]) == [B]


def test_any_number_of_pictures_with_true_lengths_is_accepted():
    parser = MultipartParser(TYPE)
    data, pictures = sized([A] * 100), 0
    for _ in range(MAX_STEPS // 100):
        pictures += len(parser.feed(data))
    assert pictures == MAX_STEPS // 100 * 100


def test_a_part_other_than_a_picture_ends_at_the_next_boundary():
    assert parse(stream([b"<html>busy</html>", A])) == [b"<html>busy</html>", A]


def test_an_oversized_part_is_dropped_and_counted_and_the_next_one_returned():
    parser = MultipartParser(TYPE, max_part=2000)
    assert parser.feed(stream([b"\xff\xd8" + b"x" * 5000, A])) == [A]
    assert parser.oversized == 1


def test_endless_headers_are_dropped():
    parser = MultipartParser(TYPE)
    assert parser.feed(b"--frame\r\n" + b"X-A: b\r\n" * 5000) == []
    assert parser.malformed >= 1
    assert parser.feed(b"\r\n" + stream([A])) == [A]


def test_an_endless_header_line_is_dropped():
    parser = MultipartParser(TYPE)
    for _ in range(20):
        parser.feed(b"--frame\r\n" + b"x" * (3 * MAX_HEADERS))
    assert parser.malformed
    assert parser.buffered < 2 * MAX_HEADERS


@pytest.mark.parametrize("junk", [b"\n", b"a\n", b"--frame\r\n\r\n", b"X: y\r\n\r\n", b"\n--"])
def test_a_stream_of_short_lines_is_ignored_after_a_limit(junk):
    parser = MultipartParser(TYPE)
    assert parser.feed(stream([A])) == [A]
    assert not parser.is_astray
    parser.feed(junk * 20_000)
    assert parser.is_astray
    assert parser.feed(stream([A])) == []
    assert not parser.buffered


PIECES = st.sampled_from(
    [b"--frame", b"--", b"-", b"\r\n", b"\n", b"\r", b"\xff\xd8", b"\xff\xd9", b"Content-Type: image/jpeg",
     b"\r\n--frame\r\nContent-Length: %d\r\n\r\n" % len(A), b"Content-Length: %d\r\n" % len(B),
     b"--frame--", b"fra", b"\xff\xda\x00\x02", b"\xff\xe0\x00\x05", b"x" * 90, b" ", A, B, A[:100]]
)  # fmt: skip


@given(
    st.lists(st.one_of(PIECES, st.binary(max_size=12)), max_size=30).map(b"".join),
    st.lists(st.integers(0, 100_000), max_size=12),
    st.sampled_from([TYPE, "m/x", "m/x;boundary=--", "m/x;boundary=--x"]),
    st.sampled_from([100, 1000, 100_000]),
)
@example(b"--frame\r\n\r\n\r", [11], TYPE, 100)
def test_splitting_any_bytes_differently_gives_the_same_parts(data, cuts, content_type, max_part):
    whole = parse(data, content_type, max_part=max_part)
    assert parse(data, content_type, cuts, max_part=max_part) == whole
    assert parse(data, content_type, range(1, len(data)), max_part=max_part) == whole
