"""Measure an operator while it gets more and more fleets, each with one shard.

`measure` declares fleets until there are as many as wanted, waits until all are covered and until their passes rest,
and then reads the operator's metrics and the counts of its requests at both ends of a span. The shards of `ManyFleets`
are pods of a cluster, or are simulated (`many_fleets_sites.py`). Both are measured in the same way, and `compare_rows`
divides one by the other.
"""

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from embereye_bench.cameras.jpeg import quantile as bucket_quantile
from embereye_bench.operator.curves import MANY
from embereye_bench.operator.site import fleet_manifest
from embereye_operator.controller import REST_PASSES, rest_period
from harness.cluster.cluster import Json, until

PODS, SIMULATED = "pods", "simulated"  # the two ways
STUB_IMAGE = "e2e-stub-shard:latest"  # of e2e/cluster/program-image
MARGIN_SECONDS = 10.0  # added to the passes after which a fleet rests
COVERED_SECONDS = 3600.0  # time limit for all fleets to be covered; a busy machine starts less than a pod a second
PERIOD = 2.0  # seconds between two reads while fleets are not covered
BUCKET = re.compile(r'^embereye_operator_pass_duration_seconds_bucket\{le="([^"]+)"\} (\S+)', re.MULTILINE)
COVERED = re.compile(r'^embereye_fleet_condition\{[^}]*condition="Covered"[^}]*\} (\S+)', re.MULTILINE)
MB = 1e6


@dataclass(frozen=True)
class Usage:
    """The usage of the pods beside the operator."""

    hub_mb: float
    hub_cpu_seconds: float
    shard_mb: float  # mean


class ManyFleets(Protocol):
    """An operator with any number of fleets."""

    way: str  # PODS or SIMULATED

    async def declare(self, fleets: Sequence[Json]) -> None:
        """Create `fleets`."""

    async def page(self) -> str:
        """The leading operator's metrics; '' if it does not answer."""

    async def asked(self) -> Counter[str]:
        """The requests that the operator has sent to the API server so far, by verb and resource."""

    async def served(self) -> int | None:
        """The number of all requests that the API server has answered so far; None: unknown."""

    async def usage(self) -> Usage | None:
        """The usage of the hub and the shards; None: there are none."""

    async def describe_problem(self) -> str:
        """One sentence that helps to find out why fleets are not covered."""


@dataclass(frozen=True)
class Row:
    """The cost of a number of fleets."""

    way: str
    fleets: int
    covered_seconds: float  # from the declaration of the additional fleets until all fleets were covered
    growing_p99: float | None  # seconds of a pass, while fleets were added; None: there was no pass
    rest_p50: float | None  # the same in the span at rest
    rest_p99: float | None
    passes: float  # a second at rest; so are the following ones
    asked: dict[str, float]  # requests of the operator, by verb and resource
    served: float | None  # requests of everybody, the measurement included
    operator_mb: float
    operator_cores: float
    hub_mb: float | None = None
    hub_cores: float | None = None
    shard_mb: float | None = None


@dataclass(frozen=True)
class _Reading:
    at: float  # monotonic seconds
    page: str
    asked: Counter[str]
    served: int | None
    usage: Usage | None


def many_fleets(first: int, end: int, namespace: str) -> list[Json]:
    """Manifests of the fleets with numbers from `first` up to `end`, whose shards are stubs. No two share a device."""
    fleets = []
    for number in range(first, end):
        fleet = fleet_manifest(f"f{number:04}", devices=MANY)
        fleet["metadata"]["namespace"] = namespace
        spec = fleet["spec"]
        spec["sensors"] = [{"id": f"f{number:04}-{sensor['id']}", "zone": sensor["zone"]} for sensor in spec["sensors"]]
        spec["image"] = STUB_IMAGE
        spec["template"] = {"resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}}
        fleets.append(fleet)
    return fleets


async def measure(
    site: ManyFleets, namespace: str, before: int, fleets: int, seconds: float, report: Callable[[str], None]
) -> Row:
    """Grow from `before` fleets to `fleets`, and measure `seconds` of rest, or as long as a period of rest takes.

    `report` prints a progress line.

    Raises:
        AssertionError: not all fleets were covered in time.
    """
    begin = await _read(site)
    await site.declare(many_fleets(before, fleets, namespace))
    covered = await _await_covered(site, fleets, report)
    grown = await _read(site)
    rest = rest_period(fleets)
    await asyncio.sleep(REST_PASSES * max(PERIOD, rest) + MARGIN_SECONDS)
    start = await _read(site)
    await asyncio.sleep(max(seconds, rest))
    return build_row(site.way, fleets, covered, (begin, grown), (start, await _read(site)))


async def _await_covered(site: ManyFleets, fleets: int, report: Callable[[str], None]) -> float:
    """Wait until all fleets are covered, and return the seconds it took."""
    started, reported = time.monotonic(), 0

    async def covered() -> int:
        nonlocal reported
        count = covered_fleets(await site.page())
        if count >= reported + 10:
            reported = count
            report(f"{count} of {fleets} fleets are covered after {time.monotonic() - started:.0f} s")
        return count

    try:
        await until(covered, lambda count: count >= fleets, f"{fleets} fleets are covered", COVERED_SECONDS, PERIOD)
    except AssertionError as error:
        raise AssertionError(f"{error}; {await site.describe_problem()}") from error
    return time.monotonic() - started


async def _read(site: ManyFleets) -> _Reading:
    page = await until(site.page, bool, "the operator's metrics", 60, PERIOD)
    return _Reading(time.monotonic(), page, await site.asked(), await site.served(), await site.usage())


def build_row(
    way: str, fleets: int, covered: float, growth: tuple[_Reading, _Reading], rest: tuple[_Reading, _Reading]
) -> Row:
    """Build a row from the readings around the growth and around the rest."""
    (begin, grown), (start, end) = growth, rest
    seconds = end.at - start.at
    cpu = "process_cpu_seconds_total"
    served = None if end.served is None or start.served is None else (end.served - start.served) / seconds
    row = Row(
        way, fleets, covered,
        growing_p99=quantile(begin.page, grown.page, 0.99),
        rest_p50=quantile(start.page, end.page, 0.5), rest_p99=quantile(start.page, end.page, 0.99),
        passes=_grown("embereye_operator_pass_duration_seconds_count", start.page, end.page) / seconds,
        asked={kind: count / seconds for kind, count in (end.asked - start.asked).most_common()}, served=served,
        operator_mb=value(end.page, "process_resident_memory_bytes") / MB,
        operator_cores=_grown(cpu, start.page, end.page) / seconds,
    )  # fmt: skip
    if start.usage is None or end.usage is None:
        return row
    cores = (end.usage.hub_cpu_seconds - start.usage.hub_cpu_seconds) / seconds
    return replace(row, hub_mb=end.usage.hub_mb, hub_cores=cores, shard_mb=end.usage.shard_mb)


def covered_fleets(page: str) -> int:
    """The number of covered fleets in the operator's metrics."""
    return sum(float(covered) == 1 for covered in COVERED.findall(page))


def value(page: str, name: str) -> float:
    """The value of a series without labels; 0 without one."""
    line = re.search(rf"^{name} (\S+)", page, re.MULTILINE)
    return float(line[1]) if line else 0.0


def _grown(name: str, before: str, after: str) -> float:
    return value(after, name) - value(before, name)


def quantile(before: str, after: str, share: float) -> float | None:
    """The time that a `share` of the passes between two pages of metrics did not exceed, in seconds.

    One beyond the last bound counts as that bound. None if there was no pass.
    """
    earlier = {bound: float(count) for bound, count in BUCKET.findall(before)}
    buckets = {float(bound): float(count) - earlier.get(bound, 0.0) for bound, count in BUCKET.findall(after)}
    return bucket_quantile(buckets, share) if buckets.get(math.inf) else None


# --- tables ---

ASKED = "asked"
Column = tuple[str, str, Callable[[float], str]]  # field of a row, title, format
COLUMNS: tuple[Column, ...] = (
    ("covered_seconds", "all covered after", lambda number: f"{number:.0f} s"),
    ("growing_p99", "p99 of a pass while growing", lambda number: f"{number * 1000:.0f} ms"),
    ("rest_p50", "median at rest", lambda number: f"{number * 1000:.1f} ms"),
    ("rest_p99", "p99 at rest", lambda number: f"{number * 1000:.1f} ms"),
    ("passes", "passes a second", lambda number: f"{number:.1f}"),
    (ASKED, "operator's requests a second", lambda number: f"{number:.2f}"),
    ("served", "all requests a second", lambda number: f"{number:.1f}"),
    ("operator_mb", "operator", lambda number: f"{number:.0f} MB"),
    ("operator_cores", "its cores", lambda number: f"{number:.3f}"),
    ("hub_mb", "hub", lambda number: f"{number:.0f} MB"),
    ("hub_cores", "its cores", lambda number: f"{number:.3f}"),
    ("shard_mb", "a stub", lambda number: f"{number:.0f} MB"),
)
ABSENT = "-"


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [["shards", "fleets", *(title for _, title, _ in COLUMNS)]]
    lines += [[row.way, f"{row.fleets:,}", *(_cell(row, column) for column in COLUMNS)] for row in rows]
    return _markdown(lines)


def _cell(row: Row, column: Column) -> str:
    name, _, show = column
    number = _number(row, name)
    return ABSENT if number is None else show(number)


def _number(row: Row, name: str) -> float | None:
    number: float | None = sum(row.asked.values()) if name == ASKED else getattr(row, name)
    return number


def compare_rows(rows: Sequence[Row]) -> str:
    """A Markdown table of the simulated rows, divided by those of pods with as many fleets; '' if there are none."""
    pods = {row.fleets: row for row in rows if row.way == PODS}
    pairs = [(row, pods[row.fleets]) for row in rows if row.way == SIMULATED and row.fleets in pods]
    compared = [column for column in COLUMNS if column[0] not in {"served", "hub_mb", "hub_cores", "shard_mb"}]
    lines = [["simulated ÷ pods", *(title for _, title, _ in compared)]]
    for simulated, real in pairs:
        ratios = [_ratio(_number(simulated, name), _number(real, name)) for name, _, _ in compared]
        lines.append([f"{simulated.fleets:,}", *ratios])
    return _markdown(lines) if pairs else ""


def _ratio(simulated: float | None, real: float | None) -> str:
    return f"{simulated / real:.2f}" if simulated is not None and real else ABSENT


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(lines[0])
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))
