"""Uploaded pictures: their stored form, and refusals."""

import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from embereye.camera import rewrite
from embereye.hub.plans.images import make_plan_image
from embereye.hub.refusals import InvalidError

FLOOR = np.full((60, 100, 3), (30, 160, 220), np.uint8)


def encoded(form: str, pixels: NDArray[Any] = FLOOR) -> bytes:
    return bytes(cv2.imencode(form, pixels)[1])


def decoded(data: bytes) -> NDArray[Any]:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert pixels is not None
    return pixels


@pytest.mark.parametrize(("form", "media"), [(".png", "image/png"), (".jpg", "image/jpeg"), (".webp", "image/png")])
async def test_the_stored_picture_looks_the_same_and_is_not_webp(form: str, media: str) -> None:
    image = await make_plan_image(encoded(form))
    assert (image.media, image.width, image.height) == (media, 100, 60)
    assert abs(decoded(image.data).astype(int) - FLOOR).max() < 12


async def test_hidden_contents_of_a_file_are_removed() -> None:
    secret = b"48.2082 N 16.3738 E"
    comment = b"\xff\xfe" + struct.pack(">H", len(secret) + 2) + secret
    photograph = encoded(".jpg")
    hidden = photograph[:2] + comment + photograph[2:] + b"<script>alert(1)</script>"
    assert secret in hidden
    stored = (await make_plan_image(hidden)).data
    assert secret not in stored
    assert b"script" not in stored


async def test_transparent_pixels_become_white() -> None:
    pixels = np.zeros((10, 10, 4), np.uint8)
    assert (decoded((await make_plan_image(encoded(".png", pixels))).data) == 255).all()


@pytest.mark.parametrize("pixels", [np.full((20, 30), 77, np.uint8), np.full((20, 30, 3), 77 * 257, np.uint16)])
async def test_grey_and_16_bit_pictures_are_accepted(pixels: NDArray[Any]) -> None:
    assert (decoded((await make_plan_image(encoded(".png", pixels))).data) == 77).all()


async def test_a_large_picture_is_scaled_down() -> None:
    image = await make_plan_image(encoded(".png", np.zeros((50, 9_000, 3), np.uint8)))
    assert (image.width, image.height) == (4_096, 23)


def test_a_picture_that_stays_too_large_becomes_a_jpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = encoded(".png", np.random.default_rng(1).integers(0, 255, (200, 200, 3)).astype(np.uint8))
    monkeypatch.setattr(rewrite, "MAX_BYTES", 60_000)
    about, picture = rewrite.rewrite(noise, "image/png")
    assert (about["media"], len(picture) <= 60_000) == ("image/jpeg", True)
    monkeypatch.setattr(rewrite, "MAX_BYTES", 100)
    assert "cannot be made small enough" in rewrite.rewrite(noise, "image/png")[0]["refused"]


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to have many pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a PNG, JPEG or WebP file"),
        (b"GIF89a", "not a PNG, JPEG or WebP file"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG, which may contain programs. Export it as PNG"),
        (b"\xef\xbb\xbf<!-- by hand --><svg/>", "SVG"),
        (b"%PDF-1.7", "a PDF"),
        (bomb(60_000, 60_000), "60000 by 60000 pixels: at most 40,000,000"),
        (bomb(0, 5), "no size"),
        (bomb(5, 5), "damaged"),
        (encoded(".png")[:60], "damaged"),
        (encoded(".jpg")[:20], "no size"),
        (encoded(".webp")[:40], "damaged"),
        (b"RIFF    WEBPVP8X" + bytes(8) + b"\xff\xff\xff\xff\xff\xff" + bytes(9), "at most 40,000,000"),
    ],
)
async def test_an_unusable_file_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(InvalidError, match=why):
        await make_plan_image(data)
