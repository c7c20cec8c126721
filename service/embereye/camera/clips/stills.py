"""The annotated still of an alarm: the full picture, the suspected place, and the reasons."""

from datetime import UTC, datetime

import cv2
import numpy as np

from embereye.levels import Kind, Level
from embereye.units import Box
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.sentences import quantity

QUALITY = 88  # JPEG quality: thin text stays legible
LINE = 22  # pixels of text at TEXT_WIDTH
TEXT_WIDTH = 640  # pixels of picture width for which LINE fits
SMALLEST = 0.6  # of LINE, on small pictures
TERMS = 8  # lines of reasons, at most
LEVEL_WORDS = {Level.PRE_ALARM: "pre-alarm", Level.ALARM: "ALARM", Level.CRITICAL: "CRITICAL"}
RED, WHITE = (0, 0, 255), (255, 255, 255)


def annotate_still(jpeg: bytes, report: EvidenceItem, box: Box | None, time_ns: int) -> tuple[bytes, int, int]:
    """Draw a frame around `box` and a caption below the picture `jpeg`. Returns (JPEG, width, height).

    Raises ValueError if `jpeg` cannot be decoded.
    """
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise ValueError("still: the frame cannot be decoded")
    height, width = picture.shape[:2]
    scale = max(SMALLEST, width / TEXT_WIDTH)
    if box:
        x, y, w, h = box
        corners = (int(x * width), int(y * height)), (int((x + w) * width), int((y + h) * height))
        cv2.rectangle(picture, *corners, RED, max(1, round(2 * scale)))
    lines = caption(report, time_ns)
    step = round(LINE * scale)
    strip = np.zeros((step * len(lines) + step // 3, width, 3), np.uint8)
    for number, line in enumerate(lines):
        position = (step // 3, (number + 1) * step - step // 4)
        cv2.putText(
            strip, line, position, cv2.FONT_HERSHEY_SIMPLEX, 0.55 * scale, WHITE, max(1, round(scale)), cv2.LINE_AA
        )
    together = np.vstack([picture, strip])
    data = cv2.imencode(".jpg", together, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
    return data, width, together.shape[0]


def caption(report: EvidenceItem, time_ns: int) -> list[str]:
    """The lines below a still, in ASCII because OpenCV's font has no other characters."""
    seconds, milliseconds = divmod(time_ns // 1_000_000, 1000)
    when = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    level = LEVEL_WORDS.get(Level(report.level), "")
    lines = [f"{report.device}, {report.zone}   {Kind(report.kind).word} {level}"]
    lines.append(f"{when}.{milliseconds:03d} UTC   score {report.score:.2f}")
    for term in report.why[:TERMS]:
        limit = f"  (limit {quantity(term.threshold, term.unit)})" if term.threshold else ""
        lines.append(f"{term.name} {quantity(term.value, term.unit)}{limit}")
    return [line.replace("°", "").encode("ascii", "replace").decode() for line in lines]
