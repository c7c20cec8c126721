"""Measuring several clients at the same time."""

import contextlib
import threading
import time

import pytest

from embereye_bench.hub.companions import Step, rate_of


def test_clients_start_together_and_their_resources_are_closed() -> None:
    opened, closed = set[int](), set[int]()
    first = threading.Event()

    def begin(stack: contextlib.ExitStack, number: int) -> Step:
        if number == 2:
            time.sleep(0.2)
            assert not first.is_set()
        opened.add(number)
        stack.callback(closed.add, number)

        pending = 3

        def step(over: bool) -> int:
            nonlocal pending
            first.set()
            time.sleep(0.01)
            pending -= over
            done[number] += pending >= 0
            return int(pending >= 0)

        return step

    done = [0, 0, 0]
    began = time.perf_counter()
    rate = rate_of(3, 0.3, begin)
    assert sum(done) / (time.perf_counter() - began) <= rate
    assert opened == closed == {0, 1, 2}
    assert rate <= 300


def test_a_client_that_cannot_start_does_not_block_the_others() -> None:
    def begin(stack: contextlib.ExitStack, number: int) -> Step:
        if number:
            raise RuntimeError("no server")
        return lambda over: not over

    with pytest.raises((RuntimeError, threading.BrokenBarrierError)):
        rate_of(4, 5.0, begin)
