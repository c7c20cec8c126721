"""JPEGs without an end marker, as small cameras send them: the decoder decides whether they are whole."""

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.decode.image import DecodeOrder, TruncatedError, decode, decode_frame

from .test_pool import Camera

PICTURE = cv2.resize(np.random.default_rng(1).integers(30, 220, (12, 16, 3)).astype(np.uint8), (320, 240))
EXIF = b"\xff\xe1\x00\x08Exif\x00\x00"
FORMS = {
    "baseline": (),
    "progressive": (cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "restart markers": (cv2.IMWRITE_JPEG_RST_INTERVAL, 4),
}
ENDS = {"nothing": b"", "half a marker": b"\xff", "padding": bytes(20), "a line end": b"\r\n"}


def encoded(*options, picture=PICTURE):
    return cv2.imencode(".jpg", picture, list(options))[1].tobytes()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1, 4])
def test_a_picture_that_lacks_only_its_end_marker_decodes_like_the_whole_one(form, end, scale):
    whole = encoded(*FORMS[form])
    unfinished = whole[:-2] + ENDS[end]
    expected = decode(whole, scale, (320, 240))
    image = decode_frame(DecodeOrder(scale), memoryview(unfinished), 320, 240).image
    assert np.array_equal(image, decode_frame(DecodeOrder(scale), whole, 320, 240).image)
    assert np.array_equal(decode(unfinished, scale, (320, 240)), expected)


@pytest.mark.parametrize("head", [b"", EXIF])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
@pytest.mark.parametrize("form", FORMS)
def test_a_picture_whose_last_pixels_are_missing_is_truncated(form, share, head):
    whole = encoded(*FORMS[form])
    scan = whole.rindex(b"\xff\xda") + 14
    cut = whole[: scan + int(share * (len(whole) - scan))]
    with pytest.raises(TruncatedError):
        decode(cut[:2] + head + cut[2:], 4, (320, 240))


@pytest.mark.parametrize("channels", ["grey", "exif"])
def test_grey_and_rotated_pictures_need_no_end_marker(channels):
    whole = encoded(picture=cv2.cvtColor(PICTURE, cv2.COLOR_BGR2GRAY) if channels == "grey" else PICTURE)
    if channels == "exif":
        whole = whole[:2] + EXIF + whole[2:]
    assert np.array_equal(decode(whole[:-2], 4, (320, 240)), decode(whole, 4, (320, 240)))


async def test_the_pool_tells_a_missing_end_marker_from_missing_pixels(pool):
    camera = Camera(pool)
    for number, jpeg in enumerate((encoded()[:-2], encoded()[:-200]), 1):
        camera.offer(number, jpeg)
        await eventually(lambda number=number: len(camera.results) == number)
    whole, cut = camera.results
    assert whole.image.shape == (120, 160, 3)
    assert isinstance(cut, TruncatedError)
