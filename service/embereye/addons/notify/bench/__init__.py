"""Benchmarks of notifications: `embereye bench hub` runs them."""

from embereye.addons.notify.bench.path import notify_path, notify_path_still, notify_storm
from embereye_bench.report import Benchmark

HUB_BENCHMARKS: dict[str, Benchmark] = {
    "notify-path": notify_path,
    "notify-path-still": notify_path_still,
    "notify-storm": notify_storm,
}
