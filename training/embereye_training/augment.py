"""Augmentation of pictures as cameras change them: exposure, white balance, blur, coding, crops, distance.

Each function takes pictures and a random generator and returns a new picture, so that the same seed gives the same
result. `changed` applies all changes of a camera, one after the other, each with its probability. The others make
difficult examples first: flame-coloured shapes, lamps at night, small flames. Pure.
"""

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]  # (side, side, 3), BGR


# Warm and cool white, sodium, brake lights, neon; values above 255 because a lamp clips.
LAMPS = (
    (170, 230, 300),
    (300, 290, 270),
    (60, 160, 330),
    (60, 70, 330),
    (90, 170, 260),
    (300, 90, 250),
    (120, 300, 120),
)


def changed(picture: Picture, random: np.random.Generator, side: int, crop_least: float) -> Picture:
    """Return `picture` as another camera might show it, `side` pixels square; crops retain `crop_least` per side."""
    picture = _cropped(picture, random, crop_least)
    picture = cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    if random.random() < 0.5:
        picture = picture[:, ::-1]
    if random.random() < 0.25:  # few pixels, as of a distant site
        small = int(random.uniform(32, 90))
        picture = cv2.resize(cv2.resize(picture, (small, small), interpolation=cv2.INTER_AREA), (side, side))  # type: ignore[assignment]
    picture = _exposed(picture, random)
    if random.random() < 0.15:
        picture = cv2.GaussianBlur(picture, (0, 0), random.uniform(0.5, 1.6))  # type: ignore[assignment]
    if random.random() < 0.2:
        noise = random.standard_normal(picture.shape, np.float32) * random.uniform(2, 12)
        picture = np.clip(picture + noise, 0, 255).astype(np.uint8)
    if random.random() < 0.25:
        quality = int(random.uniform(15, 70))
        coded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        picture = cv2.imdecode(coded, cv2.IMREAD_COLOR)  # type: ignore[assignment]
    if random.random() < 0.1:
        picture = _framed(picture, random)
    return np.ascontiguousarray(picture)


def _cropped(picture: Picture, random: np.random.Generator, least: float) -> Picture:
    side = picture.shape[0]
    width, height = (int(side * random.uniform(least, 1.0)) for _ in range(2))
    left, top = int(random.integers(0, side - width + 1)), int(random.integers(0, side - height + 1))
    return picture[top : top + height, left : left + width]


def _exposed(picture: Picture, random: np.random.Generator) -> Picture:
    """Change exposure, gamma, white balance and saturation with one table per channel."""
    gain = 2.0 ** random.uniform(-0.6, 0.6 if random.random() < 0.75 else 1.5)
    gamma = random.uniform(0.7, 1.4)
    tint = random.uniform(0.85, 1.15, 3) if random.random() < 0.8 else random.uniform(0.6, 1.3, 3)
    levels = np.arange(256) / 255.0
    table = [np.clip(255 * np.minimum(1.0, gain * levels * factor) ** gamma, 0, 255) for factor in tint]
    picture = cv2.LUT(picture, np.stack(table, axis=-1).astype(np.uint8)[None])  # type: ignore[assignment]
    saturation = 0.0 if random.random() < 0.04 else random.uniform(0.5, 1.15) if random.random() < 0.4 else 1.0
    if saturation != 1.0:
        grey = picture.mean(axis=2, keepdims=True)
        picture = np.clip(grey + saturation * (picture - grey), 0, 255).astype(np.uint8)
    return picture


def _framed(picture: Picture, random: np.random.Generator) -> Picture:
    """Add bars at two sides, as on a picture with another aspect ratio."""
    picture = picture.copy()
    bar = int(picture.shape[0] * random.uniform(0.05, 0.2))
    level = 0 if random.random() < 0.7 else int(random.integers(0, 256))
    if random.random() < 0.5:
        picture[:bar] = picture[-bar:] = level
    else:
        picture[:, :bar] = picture[:, -bar:] = level
    return picture


def painted(scene: Picture, texture: Picture, random: np.random.Generator) -> Picture:
    """Add a flame-coloured shape to `scene`, shaded like `texture`: cloth, paint, a coat."""
    side = scene.shape[0]
    corners = random.integers(4, 8)
    angles = np.sort(random.uniform(0, 2 * np.pi, corners))
    reach = side * random.uniform(0.08, 0.4) * random.uniform(0.6, 1.0, corners)
    middle = random.uniform(0.15, 0.85, 2) * side
    outline = np.stack([middle[0] + reach * np.cos(angles), middle[1] + reach * np.sin(angles)], axis=-1)
    mask = cv2.fillPoly(np.zeros((side, side), np.uint8), [outline.astype(np.int32)], 255)
    share = cv2.GaussianBlur(mask, (0, 0), random.uniform(0.5, 1.5))[..., None] / 255.0
    light = texture.max(axis=2).astype(np.float32)
    light = random.uniform(0.35, 0.7) + random.uniform(0.4, 0.8) * (light - light.min()) / max(
        1.0, float(np.ptp(light))
    )
    colour = np.array([random.uniform(0, 70), random.uniform(60, 235), random.uniform(190, 255)])
    mixed: Picture = (scene * (1 - share) + np.clip(light[..., None] * colour, 0, 255) * share).astype(np.uint8)
    return mixed


def lit(scene: Picture, random: np.random.Generator) -> Picture:
    """Return `scene` at night with a few lamps, their halos, and their reflections below them."""
    side = scene.shape[0]
    rows, columns = np.mgrid[0:side, 0:side].astype(np.float32)
    picture = scene * random.uniform(0.08, 0.6)
    for _ in range(random.integers(1, 8)):
        x, y, size = random.uniform(0, side), random.uniform(0, side), side * random.uniform(0.01, 0.07)
        colour = np.array(LAMPS[random.integers(len(LAMPS))]) * random.uniform(0.6, 1.2)
        distance = (columns - x) ** 2 + (rows - y) ** 2
        light = np.exp(-distance / size**2) + 0.25 * np.exp(-distance / (4 * size) ** 2)
        if random.random() < 0.3:
            wave = random.uniform(0, 0.6) * size * np.sin(rows / random.uniform(1, 4))
            stripe = np.exp(-(((columns - x - wave) / size) ** 2)) * (rows > y + 2 * size)
            light = light + random.uniform(0.2, 0.6) * stripe
        picture = picture + light[..., None] * colour
    result: Picture = np.clip(picture, 0, 255).astype(np.uint8)
    return result


def distant(scene: Picture, flame: Picture, random: np.random.Generator) -> Picture:
    """Paste the close-up `flame` small into `scene`; light adds, so the brighter of both is used."""
    side = scene.shape[0]
    size = int(side * random.uniform(0.1, 0.3))
    small = cv2.resize(flame, (size, size), interpolation=cv2.INTER_AREA)
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    weight = np.clip(1.6 * (1.0 - np.sqrt(x * x + y * y)), 0, 1)[..., None]
    left, top = (int(random.integers(0, side - size + 1)) for _ in range(2))
    result = scene.copy()
    part = result[top : top + size, left : left + size]
    part[:] = np.maximum(part, (weight * small).astype(np.uint8))
    return result
