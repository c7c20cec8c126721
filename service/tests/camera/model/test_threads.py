import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
from harness.eventually import eventually

from embereye.camera.model import threads as module
from embereye.camera.model.threads import ModelThreads
from embereye.camera.scheduling.mailbox import Mailbox

from ..conftest import noisy_jpeg

JPEG = noisy_jpeg()


class Camera:
    pause, urgent = 60.0, False

    def __init__(self, threads, analyse=lambda frame: frame.time_ns):
        self.box, self.results, self.hanging = Mailbox(), [], 0.0
        self.threads, self.analyse_on_thread = threads, analyse

    def offer(self, number):
        self.box.offer_frame(JPEG, number, number)
        self.threads.submit(self)

    def next_frame(self):
        return self.box.take_frame()

    def finish_turn(self, turn):
        self.results.append(turn.result)

    def report_hang(self, seconds):
        self.hanging = seconds


@pytest.fixture
async def pool():
    threads = ModelThreads(1)
    threads.start()
    yield threads
    threads.stop()


async def test_every_camera_gets_its_turn_however_fast_another_is(pool):
    gate, order = threading.Event(), []

    def work(name):
        def analyse(frame):
            gate.wait(10)
            order.append(name)

        return analyse

    fast, slow = Camera(pool, work("fast")), Camera(pool, work("slow"))
    fast.offer(1)
    await eventually(lambda: fast in pool._turns.running)
    fast.offer(2)
    slow.offer(3)
    fast.offer(4)
    gate.set()
    await eventually(lambda: len(order) == 3)
    assert order == ["fast", "slow", "fast"]
    assert fast.box.ledger.shed == {"superseded": 1}


async def test_a_camera_with_expensive_frames_gets_no_more_time_than_the_others(pool):
    spent = dict.fromkeys(("dear", "cheap"), 0.0)

    def work(name, seconds):
        def analyse(frame):
            began = time.perf_counter()
            time.sleep(seconds)  # or longer, on a busy machine
            spent[name] += time.perf_counter() - began

        return analyse

    cameras = [Camera(pool, work("dear", 0.02)), *(Camera(pool, work("cheap", 0.002)) for _ in range(3))]
    while spent["dear"] + spent["cheap"] < 2.0:
        for number, camera in enumerate(cameras):
            camera.offer(number)
        await asyncio.sleep(0.001)
    assert spent["dear"] < 0.4 * (spent["dear"] + spent["cheap"])


async def test_an_exception_is_the_result_of_its_camera_only(pool):
    def explode(frame):
        raise ZeroDivisionError("boom")

    bad, good = Camera(pool, explode), Camera(pool)
    for number in range(1, 4):
        bad.offer(number)
        good.offer(number)
        await eventually(lambda number=number: len(good.results) == number and len(bad.results) == number)
    assert all(isinstance(result, ZeroDivisionError) for result in bad.results)
    assert good.results == [1, 2, 3]


async def test_a_hanging_thread_is_replaced_and_its_camera_notified(pool, monkeypatch):
    monkeypatch.setattr(module, "HANG_SECONDS", 0.0)
    gate = threading.Event()
    stuck, other = Camera(pool, lambda frame: gate.wait(30)), Camera(pool)
    stuck.offer(1)
    await eventually(lambda: stuck in pool._turns.running)
    other.offer(2)
    pool.check_hangs()
    await eventually(lambda: other.results == [2])
    assert stuck.hanging
    assert pool.hung == 1
    gate.set()
    await eventually(lambda: stuck.results)
    assert pool.hung == 0
    other.offer(3)
    await eventually(lambda: other.results == [2, 3])


async def test_a_run_during_a_suspension_of_the_machine_does_not_count_as_hanging(pool, monkeypatch):
    gate, stood = threading.Event(), [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + stood[0]))
    camera = Camera(pool, lambda frame: gate.wait(30))
    camera.offer(1)
    await eventually(lambda: camera in pool._turns.running)
    pool.check_hangs()
    stood[0] = 60.0
    pool.check_hangs()
    assert not camera.hanging
    assert pool.hung == 0
    gate.set()
    await eventually(lambda: camera.results)


async def test_a_camera_that_is_withdrawn_is_not_called_again(pool):
    gate = threading.Event()
    first, gone = Camera(pool, lambda frame: gate.wait(10)), Camera(pool)
    first.offer(1)
    gone.offer(2)
    pool.withdraw(gone)
    gate.set()
    await eventually(lambda: first.results)
    assert not gone.results
