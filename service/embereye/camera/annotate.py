"""Writing of a video with the findings drawn in.

`embereye detect --annotate` adds every frame of a recording, with the latest observation. The video has a fixed rate: a
frame is repeated or left out so that the video's time equals the recording's. The first frame opens the file and
decides its size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from embereye.camera.decode.image import DecodedImage, UndecodableError, decode
from embereye.detect.vision.observation import Observation
from embereye.levels import Level
from embereye.process.lifecycle import UserError
from embereye.zone.sentences import smoke_words

RATE = 15.0  # frames/s of the video; frames of the recording are repeated or left out to match
_COLOURS = {Level.CLEAR: (160, 160, 160), Level.PRE_ALARM: (0, 200, 255)}  # BGR; above: red
_RED = (0, 0, 255)
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)
_FONT, _THICKNESS = cv2.FONT_HERSHEY_SIMPLEX, 1
_MARGIN = 6  # pixels left and right of the text


class Annotator:
    """One output file. It can be played only after `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._size = (0, 0)
        self._written = 0

    def add(self, data: bytes, seconds: float, seen: Observation | None) -> None:
        """Add the frame `data` of the time `seconds` with `seen` drawn in. Raises UserError if that is impossible."""
        missing = int(seconds * RATE) + 1 - self._written
        if missing <= 0:
            return
        try:
            picture = decode(data, 1)
        except UndecodableError:
            return  # the next frame is shown instead
        draw(picture, seconds, seen)
        height, width = picture.shape[:2]
        if self._writer is None:
            self._size = (width, height)
            self._writer = cv2.VideoWriter(str(self._path), cv2.VideoWriter.fourcc(*"mp4v"), RATE, self._size)
            if not self._writer.isOpened():
                raise UserError(f"--annotate {self._path}: cannot be written. Use a name that ends in .mp4")
        if (width, height) != self._size:
            picture = cv2.resize(picture, self._size)  # type: ignore[assignment]
        for _ in range(missing):
            self._writer.write(picture)
        self._written += missing

    def close(self) -> None:
        """Finish the file."""
        if self._writer:
            self._writer.release()


def draw(picture: DecodedImage, seconds: float, seen: Observation | None) -> None:
    """Draw frames around suspected places and a line of text per kind."""
    height, width = picture.shape[:2]
    size = max(0.35, height / 600)
    lines = [(f"{seconds:.1f} s", _WHITE)]
    for finding in seen.findings if seen else ():
        colour = _COLOURS.get(finding.level, _RED)
        words = f"{finding.kind.word} {finding.score:.2f} for {finding.lasted_ns / 1e9:.1f} s"
        if smoke := smoke_words(finding.terms):
            words += f", smoke{smoke}"
        lines.append((words, colour))
        if finding.box and finding.lasted_ns:
            x, y, w, h = finding.box
            corners = (int(x * width), int(y * height)), (int((x + w) * width), int((y + h) * height))
            cv2.rectangle(picture, *corners, colour, max(1, height // 240))
    wrapped = [(part, colour) for words, colour in lines for part in wrap(words, width - 2 * _MARGIN, size)]
    _write(picture, wrapped, size)


def _write(picture: DecodedImage, lines: Sequence[tuple[str, tuple[int, int, int]]], size: float) -> None:
    """Write `lines`, words and their colours, from the top left corner down, in letters of `size` with an outline."""
    places = [(_MARGIN, int(number * 36 * size)) for number in range(1, len(lines) + 1)]
    # Thicker letters make no outline: OpenCV 5 draws another weight of the font for them, which is wider.
    letters = np.zeros(picture.shape[:2], np.uint8)
    for (words, _), place in zip(lines, places, strict=True):
        cv2.putText(letters, words, place, _FONT, size, (255,), _THICKNESS)
    side = 2 * max(1, round(size)) + 1
    outline = cv2.dilate(letters, np.ones((side, side), np.uint8))
    picture[outline > 0] = _BLACK
    for (words, colour), place in zip(lines, places, strict=True):
        cv2.putText(picture, words, place, _FONT, size, colour, _THICKNESS)


def wrap(words: str, width: int, size: float) -> list[str]:
    """Divide `words` into lines of `width` pixels in letters of `size`; a longer word is a line alone."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and cv2.getTextSize(longer, _FONT, size, _THICKNESS)[0][0] > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
