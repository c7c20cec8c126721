"""Draw the frames of simulated cameras once, and store them in a file that every sender reads.

A film is a loop of the simulator's room with a fine texture, so that frames are as large as a real camera's. Cameras
share the films, with a time offset each: most show a quiet room, one in five a person, two in a hundred a fire.
"""

import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from embereye.sim.scenes.scene import Room

LENGTH = struct.Struct(">II")  # film, bytes
QUALITY = 80  # JPEG quality; cameras use 70 to 85
DETAIL = 4.5  # counts, standard deviation of the texture added to drawn rooms: frames get the size of a real room's
RATE = 15.0  # frames/s
BLAZE_BEGINS = 8.0  # seconds from a fire's outbreak to its full size
BURNING, QUIET, WALKING = "burning", "quiet", "walking"


@dataclass(frozen=True)
class Films:
    """Loops of JPEG frames; each camera shows one of them, with a time offset."""

    films: tuple[tuple[bytes, ...], ...]
    walking_every: int = 5  # one in so many cameras shows a person

    def frame(self, camera: int, number: int) -> bytes:
        """Frame `number` of `camera`: most are quiet, some show a person, two in a hundred a fire."""
        film = self.films[self.film_of(camera)]
        return film[(number + 7 * camera) % len(film)]

    def film_of(self, camera: int) -> int:
        """The index of the film that `camera` shows."""
        name = BURNING if camera % 50 == 0 else WALKING if camera % self.walking_every == 1 else QUIET
        return (QUIET, WALKING, BURNING).index(name)

    @property
    def mean_bytes(self) -> float:
        """Mean size of a quiet frame."""
        return sum(map(len, self.films[0])) / len(self.films[0])

    def save(self, path: Path) -> None:
        """Write all films to `path`."""
        with path.open("wb") as out:
            out.write(LENGTH.pack(len(self.films), self.walking_every))
            for number, film in enumerate(self.films):
                for frame in film:
                    out.write(LENGTH.pack(number, len(frame)) + frame)


def load(path: Path) -> Films:
    """Load the films saved in `path`."""
    data, offset = path.read_bytes(), LENGTH.size
    _, walking_every = LENGTH.unpack_from(data)
    films: dict[int, list[bytes]] = {}
    while offset < len(data):
        number, size = LENGTH.unpack_from(data, offset)
        offset += LENGTH.size + size
        films.setdefault(number, []).append(data[offset - size : offset])
    return Films(tuple(tuple(film) for _, film in sorted(films.items())), walking_every)


@cache
def draw(width: int = 640, height: int = 480, seconds: float = 3.0, *, options: tuple[int, ...] = ()) -> Films:
    """Draw one room, `seconds` each quiet, with a person walking, and with a fire; 25 to 40 KB per VGA frame.

    `options` are additional options of OpenCV's JPEG encoder.
    """
    cv2.setNumThreads(1)
    room = Room(width, height, 1)
    count = max(2, int(seconds * RATE))
    rng = np.random.default_rng(2)
    texture = cv2.GaussianBlur(rng.normal(0, 2 * DETAIL, (height, width, 1)).astype(np.float32), (3, 3), 0)[..., None]
    coding = [cv2.IMWRITE_JPEG_QUALITY, QUALITY, *options]

    def detailed(frame: bytes) -> bytes:
        picture = cv2.imdecode(np.frombuffer(frame, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None, "it was coded here"
        textured = np.clip(picture + texture, 0, 255).astype(np.uint8)
        return cv2.imencode(".jpg", textured, coding)[1].tobytes()

    loops = room.quiet(count), room.walk(count), room.fire(BLAZE_BEGINS, count, RATE)
    return Films(tuple(tuple(detailed(frame) for frame in loop[:]) for loop in loops))


def draw_calm(width: int = 640, height: int = 480, walking_every: int = 5) -> Films:
    """Draw the films without a fire, for benchmarks in which no camera alarms."""
    quiet, walking, _ = draw(width, height).films
    return Films((quiet, walking, quiet), walking_every)


def enlarge(films: Films, width: int, height: int, count: int = 12, *, options: tuple[int, ...] = ()) -> Films:
    """Make `count` frames of a person walking, enlarged to `width` x `height` pixels, with a fine texture."""
    rng = np.random.default_rng(3)
    texture = rng.normal(0, DETAIL, (height, width, 1)).astype(np.float32)
    coding = [cv2.IMWRITE_JPEG_QUALITY, QUALITY, *options]

    def larger(frame: bytes) -> bytes:
        picture = cv2.imdecode(np.frombuffer(frame, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None, "it was coded here"
        textured = np.clip(cv2.resize(picture, (width, height)) + texture, 0, 255).astype(np.uint8)
        return cv2.imencode(".jpg", textured, coding)[1].tobytes()

    film = tuple(larger(frame) for frame in films.films[1][:count])
    return Films((film, film, film))
