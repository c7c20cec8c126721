"""Export of stills with boxes in COCO's format, for training a custom model.

For a recording with fire, the boxes are the detectors' findings, to be corrected by people. Stills of a recording
without fire have no boxes: the model has to learn that nothing there is fire.

`CocoExport` chooses the stills of one recording at intervals. `CocoFolder` is the data set: it reads the annotations
when it opens, writes stills at once, and writes the annotations in `save`. A still is named by the digest of its
content, so an existing one, whose boxes people may have corrected, is recognised.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from embereye.detect.vision.observation import Observation
from embereye.levels import Kind, Level
from embereye.process.files import system_errors, write_whole
from embereye.process.lifecycle import UserError
from embereye.wire.jpeg.header import JpegError, read_header

EVERY_S = 1.0  # between two stills while fire is suspected
CALM_EVERY_S = 10.0  # … while it is not, in a recording without fire
CATEGORIES = {Kind.FLAME: 1, Kind.SMOKE: 2}
FILE = "annotations.json"


class CocoFolder:
    """A data set in `folder`: images/ and annotations.json. Existing contents are preserved."""

    def __init__(self, folder: Path) -> None:
        """Open `folder`; raise UserError if it cannot be written or its annotations cannot be read."""
        self._folder = folder
        self._images: dict[str, dict[str, Any]] = {}  # by file name
        self._boxes: dict[str, list[dict[str, Any]]] = {}  # by file name
        path = folder / FILE
        try:
            known = json.loads(path.read_bytes()) if path.exists() else {"images": [], "annotations": []}
            names = {image["id"]: image["file_name"] for image in known["images"]}
            self._images = {image["file_name"]: image for image in known["images"]}
            for box in known["annotations"]:
                self._boxes.setdefault(names[box["image_id"]], []).append(box)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a data set in COCO's format. Name another folder ({error!r})") from error
        with system_errors(f"--coco {folder}: cannot be written"):
            (folder / "images").mkdir(parents=True, exist_ok=True)

    @property
    def stills(self) -> int:
        """Number of stills in the data set."""
        return len(self._images)

    def add(self, data: bytes, seen: Observation | None, *, fire: bool) -> None:
        """Store the JPEG `data`, with the findings in `seen` if it shows a `fire`. May raise OSError."""
        try:
            header = read_header(data)
        except JpegError:
            return
        name = f"{hashlib.sha256(data).hexdigest()[:20]}.jpg"
        if fire and name in self._images:
            return  # people may have corrected its boxes
        write_whole(self._folder / "images" / name, data, durable=False)
        self._images[name] = {"file_name": name, "width": header.width, "height": header.height}
        self._boxes[name] = []
        for finding in seen.findings if seen and fire else ():
            if finding.box and finding.level > Level.CLEAR and finding.kind in CATEGORIES:
                x, y, width, height = finding.box
                box = [x * header.width, y * header.height, width * header.width, height * header.height]
                self._boxes[name].append({
                    "category_id": CATEGORIES[finding.kind], "bbox": [round(side, 1) for side in box],
                    "area": round(box[2] * box[3], 1), "iscrowd": 0, "score": round(finding.score, 3),
                })  # fmt: skip

    def save(self) -> None:
        """Write the annotations with new numbers. Raises OSError if that is impossible."""
        numbers = {name: number for number, name in enumerate(sorted(self._images), 1)}
        boxes = [(name, box) for name in numbers for box in self._boxes.get(name, ())]
        content = {
            "info": {"description": "stills of recordings, exported by embereye detect --coco"},
            "categories": [{"id": number, "name": kind.word} for kind, number in CATEGORIES.items()],
            "images": [{**self._images[name], "id": number} for name, number in numbers.items()],
            "annotations": [
                {**box, "id": number, "image_id": numbers[name]} for number, (name, box) in enumerate(boxes, 1)
            ],
        }
        write_whole(self._folder / FILE, json.dumps(content, indent=1).encode())


class CocoExport:
    """Selects the stills of one recording."""

    def __init__(self, folder: CocoFolder, *, fire: bool) -> None:
        self._folder = folder
        self._fire = fire
        self._last: float | None = None

    def add(self, data: bytes, seconds: float, seen: Observation | None) -> None:
        """Store the frame of the time `seconds` if a still is due."""
        suspected = seen is not None and (seen.level > Level.CLEAR if self._fire else seen.suspected)
        if not suspected and self._fire:
            return
        if self._last is not None and seconds - self._last < (EVERY_S if suspected else CALM_EVERY_S):
            return
        self._last = seconds
        self._folder.add(data, seen, fire=self._fire)
