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


def busiest(own, seconds):
    """The largest share of several times that this thread computed: a machine may stop for a while as a whole."""
    shares = []
    while len(shares) < 50 and max(shares, default=0.0) <= 0.9:
        own.busy_share()
        spin(seconds)
        shares.append(own.busy_share())
    return max(shares)


def test_a_thread_that_sleeps_has_time_to_spare_and_one_that_computes_has_none():
    own = ThreadTime()
    time.sleep(0.2)
    assert own.busy_share() < 0.5
    assert busiest(own, 0.1) > 0.9


def test_time_in_which_others_have_the_processor_is_no_time_to_spare():
    here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(here)})
    other = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert other.stdout
        other.stdout.readline()  # it computes from now on
        own, ran = ThreadTime(), time.thread_time()
        if not own._path.exists():
            pytest.skip("this kernel does not tell how long a thread waits")
        began = time.monotonic()
        spin(0.2)
        assert (time.thread_time() - ran) / (time.monotonic() - began) < 0.8
        assert busiest(own, 0.2) > 0.9
    finally:
        os.sched_setaffinity(0, here)
        other.kill()
        other.communicate()


def test_where_the_kernel_does_not_tell_only_the_time_counts_that_the_thread_ran(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda _: "no numbers")
    own = ThreadTime()
    spin(0.05)
    assert own.busy_share() > 0.1
