"""Measure the cost of more devices, shards and fleets: one number grows per curve, and all are largest together.

Each place is a table's row and, for its curve, a point of a plot. The tables are in docs/evidence/limits.md, the plots
in docs/evidence/performance.md.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embereye_bench.operator.console import Shown, declare_watches, show
from embereye_bench.operator.numbers import Number, number
from embereye_bench.operator.site import Site, fleet_manifest
from embereye_bench.plot import plot
from embereye_operator.controller import rest_period

PLACEMENT_KB = 1_048  # limit of etcd and the operator, 1 MiB
STATUS_KB = 16
PLUGIN_SECONDS = 10.0
PAGE_SECONDS = 1.0
COVERED_SECONDS, MANY_COVERED_SECONDS = 60.0, 600.0  # at most; the latter for hundreds of fleets
MANY = 4  # devices of each fleet, if there are many fleets


@dataclass(frozen=True)
class Place:
    """A size to measure: `fleets` of MANY devices and one shard each, and one fleet of `devices` and `shards`."""

    fleets: int = 0
    devices: int = 0
    shards: int = 0

    @property
    def all_fleets(self) -> int:
        """The number of fleets."""
        return self.fleets + bool(self.devices)

    @property
    def all_devices(self) -> int:
        """The number of devices of all fleets."""
        return MANY * self.fleets + self.devices

    @property
    def all_shards(self) -> int:
        """The number of shards of all fleets."""
        return self.fleets + self.shards


@dataclass(frozen=True)
class Curve:
    """Places at which one number grows."""

    across: str  # the number that grows
    places: Sequence[Place]

    def at(self, place: Place) -> int:
        """The growing number at `place`."""
        return {"devices": place.devices, "shards": place.shards}.get(self.across, place.all_fleets)


CURVES = {
    "curve-devices": Curve(
        "devices", [Place(devices=count, shards=max(1, count // 250)) for count in (10, 100, 1_000, 10_000)]
    ),
    "curve-shards": Curve("shards", [Place(devices=1_000, shards=count) for count in (1, 10, 100)]),
    "curve-fleets": Curve("fleets", [Place(fleets=count) for count in (1, 10, 100, 1_000)]),
    "largest": Curve("fleets", [Place(fleets=999, devices=10_000, shards=40)]),
}
LARGE = "large"  # name of the single fleet


@dataclass(frozen=True)
class Cost:
    """The costs at one place."""

    place: Place
    covered: float  # seconds from the operator's start, with fleets but no children, until all is covered
    cores: float  # of the idle operator
    memory: float  # MB of the operator
    placement: float  # kB, of the largest fleet
    status: float  # kB, of the largest fleet
    plugin: float  # seconds of `kubectl embereye status`, or `devices` of the largest fleet
    shown: Shown

    def number(self, name: str) -> Number:
        """Convert to a result of the command."""
        usable = (
            self.placement <= PLACEMENT_KB
            and self.status <= STATUS_KB
            and self.plugin <= PLUGIN_SECONDS
            and self.shown.page <= PAGE_SECONDS
        )
        reach = COVERED_SECONDS if self.place.all_fleets <= 100 else MANY_COVERED_SECONDS
        return number(
            name, self.covered, "s", reach, ok=usable,
            fleets=self.place.all_fleets, devices=self.place.all_devices, shards=self.place.all_shards,
            memoryMB=round(self.memory, 1), coresAtRest=round(self.cores, 4), placementKB=round(self.placement, 1),
            statusKB=round(self.status, 1), pluginSeconds=round(self.plugin, 2),
            hubCores=round(self.shown.cores, 4), hubMB=round(self.shown.memory, 1),
            pageMs=round(self.shown.page * 1000), page=self.shown.slowest, pageKB=round(self.shown.page_kb, 1),
        )  # fmt: skip

    def row(self) -> Sequence[str]:
        """The row in docs/evidence/limits.md."""
        return (
            f"{self.place.all_fleets:,}", f"{self.place.all_devices:,}", f"{self.place.all_shards:,}",
            f"{self.covered:.0f} s", f"{self.memory:.0f} MB",
            f"{self.cores:.3f}", f"{self.placement:.0f} kB", f"{self.status:.1f} kB", f"{self.plugin:.1f} s",
            f"{self.shown.memory:.0f} MB", f"{self.shown.cores:.3f}", f"{self.shown.page * 1000:.0f} ms",
        )  # fmt: skip


HEADER = ("fleets", "devices", "shards", "all covered after", "operator", "its cores at rest", "placement", "status",
          "plugin", "hub", "its cores", "slowest page")  # fmt: skip


class Curves:
    """Measures places on a site, one after the other."""

    def __init__(self, site: Site, *, quick: bool, show: Callable[[Sequence[Number]], None]) -> None:
        self._site = site
        self._quick = quick
        self._show = show

    def measure(self, name: str) -> str:
        """Measure a curve; return its table and its plots."""
        curve = CURVES[name]
        costs = []
        for place in curve.places[:2] if self._quick else curve.places:
            cost = self._measure(place)
            self._show([cost.number(f"{name.removeprefix('curve-')}-{curve.at(place)}")])
            costs.append(cost)
        return f"\n{table(costs)}\n{plots(curve, costs)}"

    def _measure(self, place: Place) -> Cost:
        fleets = [fleet_manifest(f"f{index:04}", devices=MANY) for index in range(place.fleets)]
        asyncio.run(self._site.create(fleets))
        if place.devices:
            asyncio.run(self._site.create_listed(LARGE, place.shards, place.devices))
        largest = LARGE if place.devices else "f0000"
        rest = rest_period(place.all_fleets)
        with self._site.operator() as operator:
            covered = self._site.wait(lambda: operator.is_covering(place.all_fleets), 900, f"{place} is covered")
            time.sleep(5 + rest)
            before, seconds = operator.cpu(), max(5.0 if self._quick else 15.0, rest)
            time.sleep(seconds)
            cores = (operator.cpu() - before) / seconds
            plugin = max(self._site.plugin(*arguments)[1] for arguments in (("status",), ("devices", largest)))
            placement, status = asyncio.run(self._site.stored_kb(largest))
            memory = operator.resident()
        asyncio.run(self._site.delete())
        watched = declare_watches(LARGE, place.devices, place.shards)
        watched += [watch for index in range(place.fleets) for watch in declare_watches(f"f{index:04}", MANY, 1)]
        shown = asyncio.run(show(watched, 3.0 if self._quick else 10.0))
        return Cost(place, covered, cores, memory, placement, status, plugin, shown)


def table(costs: Sequence[Cost]) -> str:
    """The costs as a Markdown table."""
    rows = [HEADER, ["---"] * len(HEADER), *(cost.row() for cost in costs)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plots(curve: Curve, costs: Sequence[Cost]) -> str:
    """Plots of idle costs and of durations; '' if there is only one place."""
    if len(costs) < 2:
        return ""
    places = [curve.at(cost.place) for cost in costs]
    busy = {"operator": [cost.cores * 100 for cost in costs], "hub": [cost.shown.cores * 100 for cost in costs]}
    waited = {
        "all covered": [cost.covered for cost in costs],
        "plugin": [cost.plugin for cost in costs],
        "slowest page": [cost.shown.page for cost in costs],
    }
    return "\n".join(
        f"```\n{plot(places, lines, curve.across, up)}\n```" for lines, up in ((busy, "% core"), (waited, "s"))
    )
