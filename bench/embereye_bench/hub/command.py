"""`embereye bench hub`: measure the hub against baselines of the same run."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from embereye.process.addons import addon_modules
from embereye_bench.hub.alarm_path import alarm_path, alarm_path_postgres, missing
from embereye_bench.hub.console_live import console_live, fleet_push_live
from embereye_bench.hub.console_wall import console_paint, console_wall
from embereye_bench.hub.fanout import fanout_425, fanout_binary, fanout_ladder, fanout_ws
from embereye_bench.hub.life import hub_hour, kill_100, saturation, shutdown
from embereye_bench.hub.login import login_425
from embereye_bench.report import Benchmark, Scale, Suite

BENCHMARKS: dict[str, Benchmark] = {
    "alarm-path": alarm_path,
    "alarm-path-postgres": alarm_path_postgres,
    "fanout-425": fanout_425,
    "fanout-ladder": fanout_ladder,
    "fanout-ws": fanout_ws,
    "fanout-binary": fanout_binary,
    "login-425": login_425,
    "console-live": console_live,
    "fleet-push-live": fleet_push_live,
    "console-paint": console_paint,
    "console-wall": console_wall,
    "saturation": saturation,
    "shutdown": shutdown,
    "kill-100": kill_100,
    "hub-hour": hub_hour,
}
NEEDS: dict[str, Sequence[str]] = {"alarm-path-postgres": ("POSTGRES",)}  # servers; skipped without them
for addon in addon_modules("bench"):
    BENCHMARKS |= getattr(addon, "HUB_BENCHMARKS", {})
    NEEDS |= getattr(addon, "NEEDS", {})
SUITE = Suite("hub", BENCHMARKS, full=Scale(5, 3.0), quick=Scale(3, 0.5))
add_arguments = SUITE.add_arguments


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmarks; return 1 if one misses its goal."""
    chosen = dict(BENCHMARKS)
    for name, needs in NEEDS.items():
        if not arguments.only and (why := missing(*needs)):
            del chosen[name]
            print(f"embereye: {name}: skipped: {why}", file=sys.stderr)
    return replace(SUITE, benchmarks=chosen).run(arguments)
