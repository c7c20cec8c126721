"""Count false alarms over a day: footage without fire and drawn lookalikes, repeatedly, as fast as possible.

The day's hours are divided equally among all films. Each film repeats, and is judged by the network that has not seen
its scene. Signs within a minute are one alarm. The result of each film is stored, so that a run can resume.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embereye.camera.replay import START_NS
from embereye.detect import vision
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.networks.appearance import AppearanceNetwork, Inspection, has_close_up
from embereye.detect.vision.working import cut
from embereye.levels import Kind, Level
from embereye.process.files import write_whole
from embereye.sim.scenes.lookalikes import LOOKALIKES, filmed
from embereye.units import SECOND
from embereye_bench.detection.folds import LabelledClip, fold_of_scene
from embereye_bench.detection.footage import Footage, footage
from embereye_bench.detection.score_folds import Networks
from embereye_bench.report import Result

RATE = 6.0  # frames/s of an overloaded shard, which has the least information
DRAWN_SECONDS = 20.0
QUIET_S = 60.0  # without a sign, after which the next sign is another alarm
MOST = {Kind.FLAME: 0, Kind.SMOKE: 1}  # allowed in 24 h


@dataclass
class Day:
    """The alarms, and the seconds observed."""

    seconds: float = 0.0
    alarms: Counter[tuple[str, str]] = field(default_factory=Counter)  # by film and kind


def watch_film(film: Footage, network: AppearanceNetwork | None, seconds: float, day: Day) -> None:
    """Play `film` to one camera repeatedly for `seconds`; add its alarms to `day`."""
    detector, raised = Detector(), dict.fromkeys(MOST, -QUIET_S)
    chosen = film.at(RATE)
    for number in range(int(seconds * RATE)):
        second, shown = number / RATE, chosen[number % len(chosen)]
        picture = np.asarray(film.pictures[shown])
        time_ns = START_NS + round(second * SECOND)
        if network and (close_ups := detector.due_inspection(time_ns)) is not None:
            logits = network.logits(picture, close_ups, film.closer(shown) if has_close_up(close_ups) else None)
            detector.add_inspection(Inspection.of(time_ns, close_ups, logits))
        place = detector.wanted_detail(time_ns) if film.jpegs else None
        detail = cut(film.closer(shown), place) if place else None
        for finding in detector.detect(picture, time_ns, detail=detail).findings:
            if finding.level < Level.ALARM:
                continue
            if second - raised[finding.kind] >= QUIET_S:
                day.alarms[film.clip.name, finding.kind.word] += 1
            raised[finding.kind] = second
    day.seconds += seconds


def films_without_fire(clips: Sequence[LabelledClip], cache: Path) -> Iterator[Footage]:
    """Yield films of fixed cameras without fire, real and drawn."""
    for clip in clips:
        if clip.fixed and clip.label == "negative":
            yield footage(clip, cache)
    for name, draw in LOOKALIKES.items():
        pictures, seconds = zip(*filmed(draw, RATE, DRAWN_SECONDS), strict=True)
        clip = LabelledClip(Path(name), "negative", f"drawn {name}", 0.0, fixed=True)
        yield Footage(clip, np.stack(pictures), np.array(seconds))


def watch_day(
    clips: Sequence[LabelledClip], cache: Path, networks: Networks, hours: float, part: tuple[int, int], folder: Path
) -> Day:
    """Observe all films for `hours` together, each by the network that has not seen its scene.

    Now, only every `part[1]`-th film from `part[0]` on is played. Earlier results, and those of other parts that run at
    the same time, are in `folder`.
    """
    fold, day = fold_of_scene(clips), Day()
    folder.mkdir(parents=True, exist_ok=True)
    films = list(films_without_fire(clips, cache))
    seconds = hours * 3600 / len(films)
    for film in films[part[0] :: part[1]]:
        done = folder / f"{film.clip.name}.json"
        if not done.exists():
            film_day = Day()
            watch_film(film, networks[fold.get(film.clip.scene, 0)], seconds, film_day)
            write_whole(done, json.dumps({kind: count for (_, kind), count in film_day.alarms.items()}).encode())
    for done in folder.glob("*.json"):
        day.seconds += seconds
        for kind, count in json.loads(done.read_text()).items():
            day.alarms[done.stem, kind] += count
    return day


def detection_digest(networks: Path | None) -> str:
    """A digest of the detectors' code and the `networks`: results of other versions are not reused."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in (Path(vision.__file__).parent, networks):
        for path in sorted(folder.rglob("*")) if folder else ():
            if path.suffix in {".py", ".onnx"}:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def results_of(day: Day) -> list[Result]:
    """The numbers with goals."""
    by_kind = {kind.word: sum(n for (_, word), n in day.alarms.items() if word == kind.word) for kind in MOST}
    hours = day.seconds / 3600
    return [
        Result(f"{kind.word}-alarms", by_kind[kind.word], f"in {hours:.1f} h without fire", 0.0, 0.0, f"≤ {most}",
               by_kind[kind.word] <= most)
        for kind, most in MOST.items()
    ]  # fmt: skip
