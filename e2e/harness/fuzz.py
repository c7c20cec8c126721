"""Feed garbage and damaged messages to a parser, which may raise only its own errors."""

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

EXAMPLES = 200
MINUTES = float(os.environ.get("FUZZ_MINUTES", "0"))  # for each target


class Target(NamedTuple):
    """A parser: `read` parses data, cut at places if it is a stream; `errors` are its own errors."""

    read: Callable[[bytes, list[int]], object]
    seeds: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` at the places."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


@st.composite
def inputs(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Garbage only, or a message with some bytes changed, missing, doubled or replaced by garbage."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=400))
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0:
                data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                del data[place : place + draw(st.integers(1, 64))]
            case 2:
                data[place:place] = draw(st.binary(max_size=16))
            case 3:
                data[place:place] = data[place : place + draw(st.integers(1, 64))]
            case _:
                data[place : place + 4] = draw(st.sampled_from([b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff"]))
    return bytes(data)


def attack(target: Target, examples: int) -> Callable[[], None]:
    """Make a test that feeds `examples` inputs to `target`."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(inputs(target.seeds), st.lists(st.integers(0, 2**16), max_size=5))
    def read(data: bytes, cuts: list[int]) -> None:
        with contextlib.suppress(*target.errors):
            target.read(data, cuts)

    return read


def fuzz(target: Target) -> None:
    """Attack `target` with a few hundred inputs, and then for MINUTES."""
    attack(target, EXAMPLES)()
    until = time.monotonic() + 60 * MINUTES
    for number in itertools.count():
        if time.monotonic() > until:
            return
        seed(number)(attack(target, 2_000))()
