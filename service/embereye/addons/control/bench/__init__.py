"""Benchmarks of control, Echo and storing over associations, beside peers: `embereye bench hub` runs them."""

from embereye.addons.control.bench.echo import echo
from embereye.addons.control.bench.lockstep import lockstep_500hz, lockstep_tcp, lockstep_unix
from embereye.addons.control.bench.storing import STORES
from embereye_bench.report import Benchmark

HUB_BENCHMARKS: dict[str, Benchmark] = {
    "lockstep-tcp": lockstep_tcp,
    "lockstep-unix": lockstep_unix,
    "lockstep-500hz": lockstep_500hz,
    "echo": echo,
    **STORES,
}
