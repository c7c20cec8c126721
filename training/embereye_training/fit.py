"""Fits the network: first to stills, then, fold by fold, to the clips of the other scenes as well."""

import logging
import pickle
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embereye_training.augment import changed, distant, lit, painted
from embereye_training.data import Group, squeezed
from embereye_training.network import INPUT_SIDE, Tree, forward, initial

logger = logging.getLogger(__name__)

BATCH = 64
SMOOTHING = 0.04  # of the labels: some are wrong
DISTANT = 0.12  # of the fires in a batch are pasted into other scenes
PAINTED, LIT = 0.12, 0.15  # of the others have things of a flame's colour, or lamps, in them
CHECKPOINT_STEPS = 50


@dataclass(frozen=True)
class Course:
    """How long, and how fast, is learnt."""

    steps: int
    rate: float
    seed: int
    clip_share: float = 0.0  # of a batch that comes from clips
    lookalikes: bool = False  # whether lamps and things of a flame's colour are put into some of what is no fire
    weight_decay: float = 0.02


class Batches:
    """Batches, half of them fire: scenes, the clips of a scene and the sources of stills are drawn alike often."""

    def __init__(self, groups: Sequence[Group], seed: int, course: Course) -> None:
        self._random = np.random.default_rng(seed)
        self._course = course
        self._by: dict[tuple[bool, bool], list[list[Group]]] = {}
        for fire in (False, True):
            scenes: defaultdict[str, list[Group]] = defaultdict(list)
            for group in groups:
                if group.fire is fire and len(group.pictures):
                    scenes[group.scene or group.name].append(group)
            self._by[fire, True] = [its for its in scenes.values() if its[0].scene]
            self._by[fire, False] = [its for its in scenes.values() if not its[0].scene]

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """(pictures, -1..1; labels, 0 or 1)."""
        labels = np.arange(BATCH) % 2 == 1
        pictures = [self._one(bool(fire)) for fire in labels]
        return normalised(np.stack(pictures)), labels.astype(np.float32)

    def _one(self, fire: bool) -> np.ndarray:
        random = self._random
        if fire and random.random() < DISTANT:
            return changed(distant(self._pick(False)[0], self._pick(True, "close")[0], random), random, INPUT_SIDE, 0.9)
        picture, still = self._pick(fire)
        made = random.random() if self._course.lookalikes and not fire else 1.0
        if made < PAINTED:
            picture = painted(picture, self._pick(False)[0], random)
        elif made < PAINTED + LIT:
            picture = lit(picture, random)
        return changed(picture, random, INPUT_SIDE, 0.6 if still or not fire else 0.75)

    def _pick(self, fire: bool, kind: str = "") -> tuple[np.ndarray, bool]:
        random = self._random
        clips = not kind and random.random() < self._course.clip_share and bool(self._by[fire, True])
        groups = self._by[fire, clips]
        if kind:
            groups = [its for its in groups if its[0].name.endswith(kind)]
        weights = np.array([1.0 if clips else sum(len(one.pictures) for one in its) ** 0.5 for its in groups])
        its = groups[random.choice(len(groups), p=weights / weights.sum())]
        group = its[random.integers(len(its))]
        return group.pictures[random.integers(len(group.pictures))], not clips


def normalised(pictures: np.ndarray) -> np.ndarray:
    """8-bit pictures as the network wants them: -1..1."""
    return pictures.astype(np.float32) / 127.5 - 1.0


def fit(
    groups: Sequence[Group], course: Course, start: tuple[Tree, Tree] | None, checkpoint: Path
) -> tuple[Tree, Tree]:
    """(parameters, statistics) after `course`, from `start` or anew; goes on from `checkpoint` where there is one."""
    parameters, statistics = start or initial(course.seed)
    schedule = optax.warmup_cosine_decay_schedule(0.0, course.rate, min(60, course.steps // 8), course.steps)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=course.weight_decay))
    state, first = optimiser.init(parameters), 0
    if checkpoint.exists():
        first, parameters, statistics, state = pickle.loads(checkpoint.read_bytes())

    def loss(parameters: Tree, statistics: Tree, pictures: jax.Array, labels: jax.Array) -> tuple[jax.Array, Tree]:
        logits, renewed = forward(parameters, statistics, pictures, train=True)
        wanted = labels * (1 - 2 * SMOOTHING) + SMOOTHING
        return optax.sigmoid_binary_cross_entropy(logits, wanted).mean(), renewed

    @jax.jit  # type: ignore[untyped-decorator]
    def step(
        parameters: Tree, statistics: Tree, state: Tree, pictures: jax.Array, labels: jax.Array
    ) -> tuple[Tree, Tree, Tree, jax.Array]:
        (value, renewed), slope = jax.value_and_grad(loss, has_aux=True)(parameters, statistics, pictures, labels)
        updates, state = optimiser.update(slope, state, parameters)
        return optax.apply_updates(parameters, updates), renewed, state, value

    batches, losses, began = Batches(groups, course.seed + 1000 * first, course), [], time.monotonic()
    for number in range(first, course.steps):
        pictures, labels = batches.draw()
        parameters, statistics, state, value = step(parameters, statistics, state, pictures, labels)
        losses.append(float(value))
        if (number + 1) % CHECKPOINT_STEPS == 0 or number + 1 == course.steps:
            pace = (time.monotonic() - began) / (number + 1 - first)
            logger.info(
                "%s: step %d of %d, loss %.3f, %.2f s a step",
                checkpoint.stem,
                number + 1,
                course.steps,
                float(np.mean(losses[-CHECKPOINT_STEPS:])),
                pace,
            )
            kept = checkpoint.with_suffix(".new")
            kept.write_bytes(pickle.dumps((number + 1, *jax.device_get((parameters, statistics, state)))))
            kept.rename(checkpoint)
    return parameters, statistics


_score = jax.jit(lambda parameters, statistics, pictures: forward(parameters, statistics, pictures, train=False)[0])


def logits(parameters: Tree, statistics: Tree, pictures: np.ndarray) -> np.ndarray:
    """The logit of each of `pictures` (8 bits, any square size)."""
    small = normalised(np.stack([squeezed(picture, INPUT_SIDE) for picture in pictures]))
    results = []
    for start in range(0, len(small), BATCH):
        part = small[start : start + BATCH]
        padded = np.concatenate([part, np.zeros((BATCH - len(part), *part.shape[1:]), np.float32)])
        results.append(np.asarray(_score(parameters, statistics, jnp.asarray(padded)))[: len(part)])
    return np.concatenate(results) if results else np.zeros(0)
