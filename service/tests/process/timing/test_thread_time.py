import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embereye.process.timing.thread_time import ThreadTime


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def idlest(measured, seconds):
    """The smallest share of several times that this thread slept: on a busy machine it is woken late."""
    shares = []
    while len(shares) < 50 and min(shares, default=1.0) >= 0.5:
        measured.busy_share()
        time.sleep(seconds)
        shares.append(measured.busy_share())
    return min(shares)


def busiest(measured, seconds):
    """The largest share of several times that this thread computed: a machine may stop for a while as a whole."""
    shares = []
    while len(shares) < 50 and max(shares, default=0.0) <= 0.9:
        measured.busy_share()
        spin(seconds)
        shares.append(measured.busy_share())
    return max(shares)


def test_a_sleeping_thread_is_idle_and_a_computing_thread_is_busy():
    measured = ThreadTime()
    assert idlest(measured, 0.2) < 0.5
    assert busiest(measured, 0.1) > 0.9


def test_waiting_for_the_processor_counts_as_busy():
    here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(here)})
    other = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert other.stdout
        other.stdout.readline()  # it computes from now on
        measured, ran = ThreadTime(), time.thread_time()
        if not measured._path.exists():
            pytest.skip("this kernel does not count how long a thread waits")
        began = time.monotonic()
        spin(0.2)
        assert (time.thread_time() - ran) / (time.monotonic() - began) < 0.8
        assert busiest(measured, 0.2) > 0.9
    finally:
        os.sched_setaffinity(0, here)
        other.kill()
        other.communicate()


def test_without_the_kernels_counts_only_cpu_time_is_busy(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda _: "no numbers")
    measured = ThreadTime()
    spin(0.05)
    assert measured.busy_share() > 0.1
