"""Run the reference load: the same work in every run, so that a slow minute of the machine is recognised."""

import random
import re
import time

import numpy as np

TIMES = 5  # the median of so many runs counts


def measure_reference() -> float:
    """CPU milliseconds of fixed work like that of shards: small objects, lines, arrays, a copy."""
    return sorted(_work() for _ in range(TIMES))[TIMES // 2]


_LINES = [b"#Sensors-%02d:ADC1=%d,ADC2=%d,ADC3=%d!\r\n" % (n % 40, n % 900, n % 700, n % 500) for n in range(2000)]
_PATTERN = re.compile(rb"#Sensor(s-\d+):ADC1=(\d+),ADC2=(\d+),ADC3=(\d+)!")
_TABLE = np.random.default_rng(1).random(200_000)


def _work() -> float:
    began = time.thread_time()
    readings: dict[bytes, list[int]] = {}
    for line in _LINES:
        if match := _PATTERN.match(line):
            readings[match[1]] = [int(match[2]), int(match[3]), int(match[4])]
    table = np.sort(_TABLE)
    table = np.convolve(table, np.ones(5) / 5, "same") + table.copy()
    random.Random(int(table[0])).shuffle(list(range(2000)))
    return (time.thread_time() - began) * 1e3
