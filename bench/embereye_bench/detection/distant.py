"""Simulate distant fires: shrink a clip's fire into a scene without fire, and count those still found.

Each clip of a fixed camera whose fire is found is pasted into the middle of a quiet scene, two to eight times smaller.
The result is played twice, with close-ups and without them. Results are grouped by the flame's width in the picture.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np
import numpy.typing as npt

from embereye.camera.decode.image import decode
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.networks.appearance import AppearanceNetwork
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.working import to_working_size, working_scale
from embereye.levels import Kind
from embereye_bench.detection.folds import LabelledClip, fold_of_scene
from embereye_bench.detection.footage import CLOSER_QUALITY, CLOSER_SIDE, Footage, footage
from embereye_bench.detection.score_folds import LATE, SOON, Networks, play
from embereye_bench.report import Result

Picture = npt.NDArray[np.uint8]

TIMES = (2, 3, 4, 6, 8)  # factors by which fires are made smaller
WIDTHS = (0.08, 0.05, 0.03, 0.02, 0.0)  # share of the picture's width: lower bounds of the classes in the results
RATE, BEFORE_S, AFTER_S = 15.0, 2.0, 15.5  # frames/s shown, and seconds around the onset
FADED = 0.15  # share of each side of the small picture that fades into the scene


@dataclass(frozen=True)
class Distant:
    """The result of one fire, made smaller."""

    clip: LabelledClip
    width: float  # of the fire, as a share of the picture's width
    close_s: float | None  # delay after the onset with close-ups; None: not found
    plain_s: float | None  # delay with inspections of the reduced picture only


def watch_distant(
    clips: Sequence[LabelledClip], cache: Path, networks: Networks, note: Callable[[str], None]
) -> Iterator[Distant]:
    """Play every fire of fixed cameras that is found at its original size, made smaller by each of TIMES."""
    fold = fold_of_scene(clips)
    scenes = [clip for clip in clips if clip.fixed and clip.label == "negative"]
    fires = [clip for clip in clips if clip.fixed and clip.label == "fire"]
    for number, clip in enumerate(fires):
        network, film = networks[fold[clip.scene]], footage(clip, cache)
        note(f"playing {clip.name}")
        widths = _widths(film, network)
        if not widths:
            continue
        scene = footage(scenes[number % len(scenes)], cache).closer(0)
        for times in TIMES:
            note(f"playing {clip.name}, {times} times smaller")
            with TemporaryDirectory() as folder:
                small = made_smaller(film, scene, times, Path(folder))
                close, plain = (play(small, Detector(), network, close=close).delay for close in (True, False))
            yield Distant(clip, statistics.median(widths) / times, close, plain)


def _widths(film: Footage, network: AppearanceNetwork | None) -> list[float]:
    """Widths of the flame in `film` while it is at least a pre-alarm, as shares of the picture's width."""
    widths: list[float] = []

    def note(_: float, __: Detector, observation: Observation) -> None:
        flames = (finding for finding in observation.findings if finding.kind == Kind.FLAME)
        widths.extend(flame.box[2] for flame in flames if flame.box and flame.level)

    is_found = play(film, Detector(), network, note).flame_s is not None
    return widths if is_found else []


def made_smaller(film: Footage, scene: Picture, times: int, folder: Path) -> Footage:
    """Shrink `film` around its onset `times` times into the middle of `scene`, and code it into `folder`."""
    size = CLOSER_SIDE, round(CLOSER_SIDE * scene.shape[0] / scene.shape[1])
    whole: Picture = cv2.resize(scene, size, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    onset, last = film.clip.onset_s, -1.0
    pictures, seconds, ends, jpegs = [], [], [0], folder / "small.jpegs"
    with jpegs.open("wb") as out:
        for number, second in enumerate(film.seconds):
            if not onset - BEFORE_S <= second <= onset + AFTER_S or second - last < 0.9 / RATE:
                continue
            last = second
            data = cv2.imencode(
                ".jpg", _pasted(whole, film.closer(number), times), [cv2.IMWRITE_JPEG_QUALITY, CLOSER_QUALITY]
            )[1].tobytes()
            ends.append(ends[-1] + out.write(data))
            pictures.append(to_working_size(decode(data, working_scale(*size))))
            seconds.append(second)
    np.save(jpegs.with_suffix(".ends.npy"), np.array(ends))
    return Footage(film.clip, np.stack(pictures), np.array(seconds), jpegs)


def _pasted(scene: Picture, picture: Picture, times: int) -> Picture:
    """Paste `picture` into the middle of `scene`, at a `times`-th of its width, with fading edges."""
    rows, columns = scene.shape[:2]
    factor = min(columns / picture.shape[1], rows / picture.shape[0]) / times
    width, height = round(picture.shape[1] * factor), round(picture.shape[0] * factor)
    small = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA).astype(np.float32)
    across, down = (np.minimum(1.0, np.minimum(np.arange(side) + 1, side - np.arange(side)) / (FADED * side))
                    for side in (width, height))  # fmt: skip
    share = (down[:, None] * across)[..., None].astype(np.float32)
    result = scene.copy()
    left, top = (columns - width) // 2, (rows - height) // 2
    part = result[top : top + height, left : left + width]
    part[:] = (part + share * (small - part)).astype(np.uint8)
    return result


def results_of(distant_fires: Sequence[Distant]) -> list[Result]:
    """By width: the number found soon and later with close-ups; baseline without."""
    results = []
    for number, least in enumerate(WIDTHS):
        most = WIDTHS[number - 1] if number else 1.0
        chosen = [fire for fire in distant_fires if least <= fire.width < most]
        if not chosen:
            continue
        for within in (SOON, LATE):
            with_close_ups, without = (
                sum(second is not None and second <= within for second in (getattr(fire, name) for fire in chosen))
                for name in ("close_s", "plain_s")
            )
            name = f"{100 * least:g}-to-{100 * most:g}-wide-{within:g}s"
            ratio = with_close_ups / without if without else 0.0
            unit = f"of {len(chosen)}, baseline: without close-ups"
            results.append(Result(name, with_close_ups, unit, without, ratio, "reported, not required", ok=True))
    return results
