"""`embereye bench operator`: measure the operator against a real kube-apiserver and etcd."""

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye_bench.operator.curves import CURVES, Curves
from embereye_bench.operator.numbers import Number, attempt, line_of, number
from embereye_bench.operator.scaling_day import LIMITS, day, parts, policies, simulate
from embereye_bench.operator.site import COVERED, NAMESPACE, Operator, Site, api_server, fleet_manifest
from embereye_bench.report import add_only, chosen_names
from embereye_operator.controller import rest_period
from embereye_operator.decide.cluster import watch_lag
from embereye_operator.decide.placement.placement import LIMIT, place, shard_loads, spread
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, FLEETS

STABILIZATION = 30  # seconds; short, to keep this benchmark affordable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="a list of {name, value, unit, baseline, ratio, reach, ok}")
    add_only(parser, BENCHES)
    parser.add_argument("--quick", action="store_true", help="with a tenth of the fleets, for a few seconds each")
    parser.add_argument("--kubeconfig", type=Path, help="API server; its fleets are deleted. Default: a temporary one")


def run(arguments: argparse.Namespace) -> int:
    """Measure; return 0 if every number is within its limit."""
    names = chosen_names(arguments.only, BENCHES) or list(BENCHES)
    numbers: list[Number] = []

    def show(results: Sequence[Number]) -> None:
        for entry in results:
            numbers.append(entry)
            if not arguments.json:
                print(line_of(entry), flush=True)

    def report(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    on_server = [name for name in names if name in ON_SERVER]
    for name in names:
        if name in PURE:
            attempt(name, lambda measure=PURE[name]: show(measure(arguments.quick)), show)  # type: ignore[misc]
    if on_server:
        with api_server(arguments.kubeconfig) as kubeconfig:
            site = Site(kubeconfig)
            _Session(site, quick=arguments.quick, show=show).run(on_server)
            curves = Curves(site, quick=arguments.quick, show=show)
            for name in on_server:
                if name in CURVES:
                    attempt(name, lambda name=name: report(curves.measure(name)), show)  # type: ignore[misc]
    if arguments.json:
        print(json.dumps([asdict(entry) for entry in numbers], indent=1))
    return int(not all(entry.ok for entry in numbers))


# --- without a server ----------------------------------------------------------------------------------------------


def _placement(name: str, count: int, reach: float) -> list[Number]:
    devices = [f"sensor-{index:06}" for index in range(count)]
    zones = {device: f"zone-{index // 10}" for index, device in enumerate(devices)}
    eight, nine = ([f"hall-sensors-{index}" for index in range(size)] for size in (8, 9))
    before = place(devices, eight, {}, zones=zones)
    started = time.perf_counter()
    after = place(devices, nine, before, zones=zones)
    seconds = time.perf_counter() - started
    moved = sum(before[device] != after[device] for device in devices) / count
    uneven = spread(shard_loads(after, nine, {}))
    ok = moved <= 0.12 and uneven <= LIMIT
    return [number(name, seconds * 1000, "ms", reach, ok=ok, moved=round(moved, 4), maxOverMean=round(uneven, 4))]


def _scaling_day(quick: bool) -> list[Number]:
    whole = {name: simulate(day(quick=quick), policy, LIMITS) for name, policy in policies().items()}
    table = {name: _result(result) for name, result in whole.items()}
    others = {name: result for name, result in whole.items() if name.startswith("hpa")}
    best = min(others, key=lambda name: (others[name].quantile(0.99), others[name].pod_seconds))
    cases = {}
    for case in () if quick else parts():
        cases[case.name] = {
            name: _result(simulate(case, policy, LIMITS))
            for name, policy in policies().items()
            if name in {"embedded", best}
        }
    worse = [
        name
        for name, results in cases.items()
        if results["embedded"]["p99"] > results[best]["p99"]
        or results["embedded"]["podSeconds"] > results[best]["podSeconds"]
    ]
    ours, theirs, keda = whole["embedded"], others[best], whole["keda"]
    return [
        number(
            "scaling-day", ours.quantile(0.99), "s", theirs.quantile(0.99), baseline=theirs.quantile(0.99),
            ok=ours.pod_seconds <= theirs.pod_seconds, against=best, podSeconds=ours.pod_seconds,
            podSecondsThere=theirs.pod_seconds, delayOfKeda=round(keda.quantile(0.99), 1), notBetterIn=worse,
            day=table, cases=cases,
        )
    ]  # fmt: skip


def _result(result: Any) -> dict[str, float]:
    return {
        "p50": round(result.quantile(0.5), 3),
        "p99": round(result.quantile(0.99), 3),
        "podSeconds": result.pod_seconds,
        "changes": result.changes,
        "peak": result.peak,
    }


PURE: dict[str, Callable[[bool], list[Number]]] = {
    "placement-2k": lambda _: _placement("placement-2k", 2_000, 50),
    "placement-100k": lambda _: _placement("placement-100k", 100_000, 3_000),
    "scaling-day": _scaling_day,
}
MANY = ("cold-start", "rest-1000", "change-p99", "idle-shrinks-1000", "rollout-1000")
ON_SERVER = (*MANY, "leader-takeover", "shard-loss", *CURVES)
BENCHES = (*PURE, *ON_SERVER)


# --- against an API server ------------------------------------------------------------------------------------------


class _Session:
    """Fleets on a server, and operators that reconcile them."""

    def __init__(self, site: Site, *, quick: bool, show: Callable[[Sequence[Number]], None]) -> None:
        self._site = site
        self._fleets = 100 if quick else 1000
        self._seconds = 8 if quick else 30
        self._show = show

    def run(self, names: Sequence[str]) -> None:
        """Measure in an order in which each benchmark finds the fleets that it needs."""
        if many := [name for name in MANY if name in names]:
            attempt(", ".join(many), lambda: self._measure_many(names), self._show)
        if "leader-takeover" in names:
            attempt("leader-takeover", self._takeover, self._show)
        if "shard-loss" in names:
            attempt("shard-loss", self._loss, self._show)

    def _measure_many(self, names: Sequence[str]) -> None:
        try:
            asyncio.run(self._site.create([fleet_manifest(f"f{index:04}") for index in range(self._fleets)]))
            with self._site.operator() as operator:
                self._cold_start(operator, first=True, shown="cold-start" in names)
            with self._site.operator() as operator:
                self._cold_start(operator, first=False, shown="cold-start" in names)
                if "rest-1000" in names:
                    self._rest(operator)
                if "change-p99" in names:
                    self._wait_covered(operator)
                    self._show([asyncio.run(self._changes())])
                if "idle-shrinks-1000" in names:
                    self._idle(operator)
            if "rollout-1000" in names:
                self._rollout()
        finally:
            asyncio.run(self._site.delete())

    def _cold_start(self, operator: Operator, *, first: bool, shown: bool) -> None:
        def observed() -> bool:
            return operator.metrics().count("\nembereye_fleet_shards{") >= self._fleets

        seconds = self._site.wait(observed, 600, f"{self._fleets} fleets observed")
        if shown:
            name = "cold-start-empty" if first else "cold-start"
            stage = "children are made" if first else "children exist"
            self._show([number(name, seconds, "s", 600 if first else 60, fleets=self._fleets, stage=stage)])

    def _wait_covered(self, operator: Operator) -> float:
        return self._site.wait(lambda: operator.is_covering(self._fleets), 300, "all fleets covered")

    def _idle(self, operator: Operator) -> None:
        """Let one fleet, among many idle ones, have work for two shards, become idle, and then have almost none."""
        limits: dict[str, Any] = {"minShards": 1, "maxShards": 3, "targetUtilization": 0.2}
        limits["scaleDown"] = {"stabilization": f"{STABILIZATION}s"}
        self._site.work.write_text("idle 0.3")
        asyncio.run(self._site.create([fleet_manifest("idle", shards=2, autoscaling=limits)]))
        self._wait_covered(operator)
        time.sleep(rest_period(self._fleets) + 10)
        ok = asyncio.run(self._shards("idle")) == 2
        self._site.work.write_text("idle 0.001")
        limit = STABILIZATION + 120
        try:
            seconds = self._site.wait(lambda: asyncio.run(self._shards("idle")) == 1, limit, "a fleet that shrinks")
        except UserError:
            seconds, ok = float(limit), False
        reach = STABILIZATION + 60
        self._show([number("idle-shrinks-1000", seconds, "s", reach, ok=ok, fleets=self._fleets + 1)])

    async def _shards(self, name: str) -> int:
        client = self._site.client()
        fleet: Any = await client.get(FLEETS["SensorFleet"], name, namespace=NAMESPACE)
        await client.close()
        return int(fleet["spec"]["shards"])

    def _rollout(self) -> None:
        """Start an operator with another image, which rolls out every fleet, while it lists everything repeatedly."""
        with self._site.operator("--image=another", EMBEREYE_RESYNC_SECONDS="20") as operator:
            answers, ill = 0, 0

            def count_answer() -> None:
                nonlocal answers, ill
                time.sleep(1)
                well = operator.is_well()
                answers, ill = answers + well, ill + (answers > 0 and not well)

            def rolled() -> bool:
                for _ in range(3):
                    count_answer()
                return asyncio.run(self._images("another")) >= self._fleets

            seconds = self._site.wait(rolled, 900, "every fleet rolled")
            seconds += self._wait_covered(operator)
            for _ in range(int(watch_lag.LIMIT) + 30):  # until a dead watch would be reported
                count_answer()
            ok = operator.process.poll() is None and not ill
            writes = operator.value('embereye_operator_writes_total{changed="true"')
            void = operator.value('embereye_operator_writes_total{changed="false"')
            self._show(
                [
                    number("rollout-1000", void, "writes that change nothing", 0, ok=ok, fleets=self._fleets,
                           seconds=round(seconds, 1), writes=int(writes), unhealthy=ill)
                ]
            )  # fmt: skip

    async def _images(self, image: str) -> int:
        client, rolled = self._site.client(), 0
        listed: Any = client.list(CHILDREN["Deployment"], namespace=NAMESPACE, chunk_size=500)
        async for manifest in listed:
            rolled += manifest["spec"]["template"]["spec"]["containers"][0]["image"] == image
        await client.close()
        return rolled

    def _rest(self, operator: Operator) -> None:
        self._wait_covered(operator)
        time.sleep(self._seconds / 2)
        before = asyncio.run(self._versions())
        started, cpu = time.monotonic(), operator.cpu()
        # Every fleet is reconciled once in this time, for any number of fleets.
        time.sleep(rest_period(self._fleets))
        seconds = time.monotonic() - started
        share = (operator.cpu() - cpu) / seconds * 100
        writes = sum(version != before.get(key) for key, version in asyncio.run(self._versions()).items()) / seconds
        resident = operator.resident()
        self._show(
            [
                number("rest-1000", share, "% of a core", 3, fleets=self._fleets, ok=resident <= 120 and not writes),
                number("rest-1000-memory", resident, "MB", 120, fleets=self._fleets),
                number("rest-1000-writes", writes, "writes/s", 0, fleets=self._fleets),
            ]
        )

    async def _versions(self) -> dict[Any, str]:
        client, versions = self._site.client(), {}
        for kind in (FLEETS["SensorFleet"], *(CHILDREN[name] for name in ("Deployment", "Service", "ConfigMap"))):
            listed: Any = client.list(kind, namespace=NAMESPACE, chunk_size=500)
            async for manifest in listed:
                versions[kind.__name__, manifest["metadata"]["name"]] = manifest["metadata"]["resourceVersion"]
        await client.close()
        return versions

    async def _changes(self) -> Number:
        """Change deadlines at 20 a second; a change is applied once the placement contains it."""
        client, rate = self._site.client(), 20
        kind, maps = FLEETS["SensorFleet"], CHILDREN["ConfigMap"]
        requested: dict[tuple[str, str], float] = {}
        delays: list[float] = []
        listed: Any = client.list(maps, namespace=NAMESPACE, chunk_size=500)
        _ = [manifest async for manifest in listed]

        async def follow() -> None:
            events: Any = client.watch(maps, namespace=NAMESPACE, resource_version=listed.resourceVersion)
            async for _, manifest in events:
                name = manifest["metadata"]["name"].removesuffix("-sensors-placement")
                for (fleet, deadline), when in list(requested.items()):
                    if fleet == name and f'"deadlineNs":"{deadline}"' in "".join((manifest.get("data") or {}).values()):
                        delays.append(time.monotonic() - when)
                        del requested[fleet, deadline]

        async with beside(follow(), name="bench-follow"):
            await asyncio.sleep(0.5)
            total = rate * self._seconds
            started = time.monotonic()
            for index in range(total):
                await asyncio.sleep(max(0.0, started + index / rate - time.monotonic()))
                fleet, milliseconds = f"f{index % self._fleets:04}", 6000 + index
                requested[fleet, str(milliseconds * 1_000_000)] = time.monotonic()
                patch = {"spec": {"deadline": f"{milliseconds}ms"}}
                await client.patch(kind, fleet, patch, namespace=NAMESPACE, patch_type=PatchType.MERGE)
            for _ in range(100):
                if not requested:
                    break
                await asyncio.sleep(0.1)
        await client.close()
        delays.sort()
        p99 = delays[int(len(delays) * 0.99)] if delays else float("inf")
        return number("change-p99", p99, "s", 1, ok=not requested, changes=total, lost=len(requested),
                      p50=round(delays[len(delays) // 2], 3) if delays else None)  # fmt: skip

    def _record(self, name: str) -> dict[str, str]:
        async def read() -> dict[str, str]:
            client = self._site.client()
            try:
                record: Any = await client.get(CHILDREN["ConfigMap"], f"{name}-sensors-placement", namespace=NAMESPACE)
                devices: dict[str, str] = json.loads(record["data"]["placement.json"])["devices"]
            except ApiError:
                return {}
            else:
                return devices
            finally:
                await client.close()

        return asyncio.run(read())

    def _takeover(self) -> None:
        asyncio.run(self._site.create([fleet_manifest("takeover", shards=3, devices=60)]))
        with self._site.operator("--lease=bench") as first, self._site.operator("--lease=bench") as second:
            both = {first.port: first, second.port: second}

            def leaders() -> list[Operator]:
                return [entry for entry in both.values() if entry.value("embereye_operator_leading") == 1]

            self._site.wait(lambda: len(leaders()) == 1, 60, "a leader")
            (leader,) = leaders()
            self._site.wait(lambda: len(set(self._record("takeover").values())) == 3, 60, "three shards with devices")
            self._site.wait(lambda: leader.value(COVERED) == 1, 60, "coverage")
            before = self._record("takeover")
            os.kill(leader.process.pid, signal.SIGKILL)
            leader.process.wait()
            del both[leader.port]
            (follower,) = both.values()
            seconds = self._site.wait(lambda: follower.value("embereye_fleet_shards") > 0, 60, "a takeover")
            time.sleep(5)
            after = self._record("takeover")
        moved = sum(after.get(device) != shard for device, shard in before.items())
        self._show([number("leader-takeover", seconds, "s", 15, ok=not moved, moved=moved, devices=len(before))])
        asyncio.run(self._site.delete())

    def _loss(self) -> None:
        asyncio.run(self._site.create([fleet_manifest("loss", shards=3, devices=60)]))
        with self._site.operator() as operator:
            self._site.wait(lambda: len(set(self._record("loss").values())) == 3, 60, "three shards with devices")
            time.sleep(5)
            operator.dead.write_text(f"{NAMESPACE}/loss-sensors-1")
            seconds = self._site.wait(
                lambda: "loss-sensors-1" not in self._record("loss").values(), 60, "a new placement"
            )
            seconds += self._site.wait(lambda: operator.value(COVERED) == 1, 60, "coverage")
        self._show([number("shard-loss", seconds, "s", 10, devices=60)])
        asyncio.run(self._site.delete())
