import struct

import cv2
import numpy as np
import pytest

from embereye.wire.jpeg.header import JpegError
from embereye.wire.radiometric import is_radiometric, read_header, read_words, wrap

WORDS = np.random.default_rng(3).integers(29_000, 31_000, (120, 160)).astype(np.uint16)


def by_opencv(words, compression=1):
    return cv2.imencode(".tiff", words, [cv2.IMWRITE_TIFF_COMPRESSION, compression])[1].tobytes()


def big_endian(words):
    height, width = words.shape
    tags = [(256, 3, width), (257, 3, height), (258, 3, 16), (273, 4, 8 + 2 + 12 * 4 + 4)]
    entries = b"".join(
        struct.pack(">HHI", tag, kind, 1) + (struct.pack(">HH", value, 0) if kind == 3 else struct.pack(">I", value))
        for tag, kind, value in tags
    )
    return b"MM\0*" + struct.pack(">IH", 8, 4) + entries + bytes(4) + words.astype(">u2").tobytes()


def many_strips(count, size):
    """A picture of one pixel in strips that all refer to the same bytes."""
    whole = wrap(1, 1, bytes(size))
    at = len(whole)
    for tag, kind, value in ((273, 4, 0), (279, 4, size)):
        place = whole.index(struct.pack("<HHI", tag, kind, 1))
        whole = whole[:place] + struct.pack("<HHII", tag, kind, count, at) + whole[place + 12 :]
        whole += struct.pack("<I", value) * count
        at = len(whole)
    return whole


@pytest.mark.parametrize("make", [by_opencv, big_endian, lambda words: wrap(160, 120, words.astype("<u2").tobytes())])
def test_the_words_of_a_tiff_are_read(make):
    data = make(WORDS)
    assert is_radiometric(data)
    header = read_header(data)
    assert (header.width, header.height, header.complete) == (160, 120, True)
    assert np.array_equal(read_words(data), WORDS)


def test_other_programs_read_wrapped_raw_words():
    data = wrap(160, 120, WORDS.astype("<u2").tobytes())
    read = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert read is not None
    assert np.array_equal(read, WORDS)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wrap(160, 120, WORDS.tobytes()[:-2]), "truncated: 160x120 words of 16 bits need 2 more bytes"),
        (wrap(0, 120, b""), "too large: 0x120 pixels"),
        (wrap(160, 120, WORDS.tobytes() + b"ab"), "too large: 2 bytes more than 160x120 words of 16 bits"),
        (
            wrap(160, 120, WORDS.tobytes()).replace(struct.pack("<HHI", 256, 4, 1), struct.pack("<HHI", 256, 4, 0)),
            "too large: 0x120 pixels",
        ),
        (many_strips(8_000, 1_000_000), "too large: 7999999998 bytes more than 1x1 words"),
        (wrap(2**31, 2**31, b"ab"), "too large"),
        (by_opencv(WORDS, compression=5), "unsupported TIFF: compression [5], not 1"),
        (cv2.imencode(".tiff", WORDS.astype(np.uint8))[1].tobytes(), "unsupported TIFF: bits [8], not 16"),
        (b"II*\0", "truncated"),
        (b"II*\0\xff\xff\xff\xff", "truncated"),
        (b"\xff\xd8", "not a TIFF"),
    ],
)
def test_unreadable_pictures_are_refused_with_a_reason(data, reason):
    with pytest.raises(JpegError) as caught:
        read_header(data)
    assert str(caught.value).startswith(reason)


def test_noise_in_the_directory_is_refused_or_read_and_never_hangs():
    rng = np.random.default_rng(7)
    whole = wrap(16, 12, bytes(16 * 12 * 2))
    for _ in range(2000):
        damaged = bytearray(whole)
        for place in rng.integers(4, 130, 3):
            damaged[place] = rng.integers(256)
        try:
            read_header(bytes(damaged))
        except JpegError:
            continue
        assert read_words(bytes(damaged)).size
