"""`kubectl embereye drill`: do harm to a fleet in this cluster, one fault after the other, and measure the recovery.

The faults are rows of the reliability tests, with the same bounds. Each needs the rights that its kubectl command
needs: to delete or evict pods, to cordon a node. A drill starts only if the fleet is covered, and ends at the first
fault after which coverage does not return in time. Ctrl-C ends it; a cordoned node is always uncordoned. Events on the
fleet announce its start and end. With --console, the hub shows a banner meanwhile and signs the report.

Coverage is read from the fleet's status, which the operator renews about every second. The recovery counts from the
harm to the beginning of the first STEADY_SECONDS in which the fleet was covered and the harmed object was gone.
"""

import argparse
import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import PodEviction
from lightkube.types import PatchType

from embereye.process.files import system_errors, write_whole
from embereye.process.lifecycle import UnreachableError, UserError
from embereye.process.telemetry.logs import visible
from embereye.units import utc
from embereye_cli.cluster.kubectl_options import target_of
from embereye_cli.explain.fleet import add_fleet_arguments, print_problem, select
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.terminal import camel_keys
from embereye_operator.api.bounds import COVERED_SECONDS, GAPS
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.api.schema import from_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.runtime.kubernetes.client.client import connected, fleets_of
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, EVENTS, FLEETS, NODES, PODS, api_version

POLL_SECONDS = 0.5
STEADY_SECONDS = 5.0  # without interruption, so that a status from before the harm is no recovery
LAG_SECONDS = 3.0  # of a fleet's status behind its shards
HUB = {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/component": "hub"}
SIGN_SECONDS = 60.0  # time limit for the hub to answer at the end, because a fault may have ended it
EVICTION_SECONDS = 90.0  # how long a budget may refuse an eviction
BUDGET_REFUSES = 429  # the status of the API server's answer
NOT_HERE = "This hub has no drills: it is an earlier version"
FIELD_MANAGER = "kubectl-embereye"


@dataclass(frozen=True)
class Patience:
    """Time limits, in seconds."""

    recovery: float = COVERED_SECONDS
    steady: float = STEADY_SECONDS
    poll: float = POLL_SECONDS


@dataclass
class Result:
    """The outcome of one fault."""

    fault: str
    target: str
    started: str  # UTC
    uncovered_seconds: float = 0.0  # the longest time for which the status said that a device was not covered
    allowed_seconds: float = 0.0
    recovered_after_seconds: float | None = None  # None: not in time
    outcome: str = "aborted"  # passed, too long, not recovered, refused, aborted


class NotRecoveredError(Exception):
    """Coverage did not return in time."""


@dataclass(frozen=True)
class Place:
    """The fleet under drill, and the place of its hub."""

    client: AsyncClient
    fleet: Fleet
    hub_namespace: str

    async def shard_pods(self) -> list[Any]:
        """The fleet's running pods. UserError if there is none."""
        pods = await self._list(PODS, self.fleet.namespace, self.fleet.names.selector)
        if not pods:
            raise UserError(f"{self.fleet.key} has no pod in namespace {self.fleet.namespace}")
        return pods

    async def hub_pods(self) -> list[Any]:
        """The hub's running pods. UserError if there is none."""
        pods = await self._list(PODS, self.hub_namespace, HUB)
        if not pods:
            raise UserError(f"namespace {self.hub_namespace} has no pod of a hub: name its namespace, --hub-namespace")
        return pods

    async def _list(self, kind: Any, namespace: str, labels: Mapping[str, str]) -> list[Any]:
        listed: Any = self.client.list(kind, namespace=namespace, labels=dict(labels))
        remaining = [item async for item in listed if not item["metadata"].get("deletionTimestamp")]
        return sorted(remaining, key=lambda item: str(item["metadata"]["name"]))

    async def delete(self, pod: Any) -> "Target":
        """Delete a pod."""
        metadata = pod["metadata"]
        await self.client.delete(PODS, metadata["name"], namespace=metadata["namespace"])
        return f"pod {metadata['name']}", [(PODS, pod)]

    async def evict(self, pod: Any) -> None:
        """Evict a pod, as `kubectl drain` does: again while its budget refuses it, until another shard watches.

        UserError if the API server refuses it, or the budget still does after EVICTION_SECONDS.
        """
        name, namespace = str(pod["metadata"]["name"]), str(pod["metadata"]["namespace"])
        eviction = PodEviction(metadata=ObjectMeta(name=name, namespace=namespace))
        end = time.monotonic() + EVICTION_SECONDS
        while not await self.is_gone(PODS, pod):
            try:
                await self.client.create(eviction, name, namespace=namespace)
            except ApiError as error:
                if error.status.code != BUDGET_REFUSES or time.monotonic() > end:
                    raise UserError(f"pod {name}: the eviction was refused: {error.status.message}") from error
            else:
                return
            await asyncio.sleep(1.0)

    async def is_gone(self, kind: Any, before: Any) -> bool:
        """True if the object is gone, or another one has its name."""
        metadata = before["metadata"]
        try:
            now: Any = await self.client.get(kind, metadata["name"], namespace=metadata.get("namespace"))
        except ApiError as error:
            if error.status.code == 404:
                return True
            raise
        return bool(now["metadata"]["uid"] != metadata["uid"])

    async def status(self) -> FleetStatus:
        """The fleet's present status."""
        kind = FLEETS[self.fleet.type.resource]
        manifest: Any = await self.client.get(kind, self.fleet.name, namespace=self.fleet.namespace)
        document = {**manifest, "kind": self.fleet.type.resource, "apiVersion": api_version(kind)}
        status: FleetStatus = from_manifest(FleetStatus, parse_fleet(document, strict=False).status)
        return status

    async def announce(self, reason: str, message: str) -> None:
        """Write an event on the fleet."""
        now = utc(time.time_ns())
        event = {
            "metadata": {"name": f"{self.fleet.name}-drill-{secrets.token_hex(8)}", "namespace": self.fleet.namespace},
            "involvedObject": {
                "apiVersion": api_version(FLEETS[self.fleet.type.resource]), "kind": self.fleet.type.resource,
                "namespace": self.fleet.namespace, "name": self.fleet.name,
                "uid": self.fleet.manifest["metadata"].get("uid", ""),
            },
            "reason": reason, "message": message[:1000], "type": "Normal", "firstTimestamp": now,
            "lastTimestamp": now, "count": 1, "source": {"component": FIELD_MANAGER},
        }  # fmt: skip
        await self.client.create(EVENTS.from_dict(event))


Target = tuple[str, list[tuple[Any, Any]]]  # words, and the harmed objects with their kinds
Harm = Callable[[Place, argparse.Namespace], AbstractAsyncContextManager[Target]]


@asynccontextmanager
async def shard_deleted(place: Place, _: argparse.Namespace) -> AsyncIterator[Target]:
    """Delete the pod of a shard."""
    yield await place.delete((await place.shard_pods())[0])


@asynccontextmanager
async def hub_deleted(place: Place, _: argparse.Namespace) -> AsyncIterator[Target]:
    """Delete a pod of the hub."""
    yield await place.delete((await place.hub_pods())[0])


@asynccontextmanager
async def placement_deleted(place: Place, _: argparse.Namespace) -> AsyncIterator[Target]:
    """Delete the ConfigMap of the placement, which the operator writes again."""
    name, kind = place.fleet.names.placement, CHILDREN["ConfigMap"]
    before: Any = await place.client.get(kind, name, namespace=place.fleet.namespace)
    await place.client.delete(kind, name, namespace=place.fleet.namespace)
    yield f"ConfigMap {name}", [(kind, before)]


@asynccontextmanager
async def node_drained(place: Place, arguments: argparse.Namespace) -> AsyncIterator[Target]:
    """Cordon the node of --allow-node, evict the fleet's pods from it, and uncordon it."""
    node = arguments.allow_node
    pods = [pod for pod in await place.shard_pods() if pod["spec"].get("nodeName") == node]
    if not pods:
        raise UserError(f"node {node} has no pod of {place.fleet.key}")
    before: Any = await place.client.get(NODES, node)
    if before.get("spec", {}).get("unschedulable"):
        raise UserError(f"node {node} is cordoned already: a drill would uncordon it")
    try:
        await _cordon(place.client, node, True)
        for pod in pods:
            await place.evict(pod)
        yield f"node {node}, pods {', '.join(pod['metadata']['name'] for pod in pods)}", [(PODS, pod) for pod in pods]
    finally:
        await _cordon(place.client, node, None)


async def _cordon(client: AsyncClient, node: str, value: bool | None) -> None:
    patch = {"spec": {"unschedulable": value}}
    await client.patch(NODES, node, patch, patch_type=PatchType.MERGE, field_manager=FIELD_MANAGER)


@dataclass(frozen=True)
class Row:
    """A fault of a drill, and the fault of the reliability tests whose bound it has."""

    summary: str
    harm: Harm
    bound: str


ROWS: dict[str, Row] = {
    "shard-deleted": Row("delete the pod of a shard", shard_deleted, "shard deleted"),
    "hub-deleted": Row("delete a pod of the hub", hub_deleted, "hub killed"),
    "placement-deleted": Row("delete the ConfigMap of the placement", placement_deleted, "ConfigMaps gone"),
    "node-drained": Row(
        "cordon a node, evict the fleet's pods, uncordon it; needs --allow-node", node_drained, "node drained"
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `kubectl embereye drill`."""
    add_fleet_arguments(parser)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="one after the other; without any, list them")
    parser.add_argument(
        "--hub-namespace", default="", metavar="NAME", help="namespace of the hub; default: the fleet's"
    )
    parser.add_argument("--allow-node", default="", metavar="NODE", help="the node that node-drained may drain")
    parser.add_argument("--who", default="", metavar="NAME", help="who makes the drill, for its announcement")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="write the report to a file, as JSON")
    add_console_options(parser)


async def run(arguments: argparse.Namespace) -> int:
    """Make the drill; returns 1 unless each fault passed."""
    if not arguments.faults:
        for name, row in ROWS.items():
            print(f"{name:<18} {row.summary} (gap: {GAPS[row.bound]:g} s at most)")
        return 0
    for name in arguments.faults:
        if name not in ROWS:
            raise UserError(f"{name} is no fault of a drill. Choose from {', '.join(ROWS)}.")
    if "node-drained" in arguments.faults and not arguments.allow_node:
        raise UserError("node-drained needs --allow-node NODE: it moves the fleet's pods off this node")
    async with connected(target_of(arguments)) as client:
        fleet = select(await fleets_of(client, client.namespace, print_problem), arguments.name)
        place = Place(client, fleet, arguments.hub_namespace or fleet.namespace)
        return await drill(place, arguments)


async def drill(place: Place, arguments: argparse.Namespace, patience: Patience = Patience()) -> int:
    """Make an announced drill, print and write its report; returns 1 unless each fault passed."""
    if why := uncovered(await place.status()):
        raise UserError(f"{place.fleet.key} is not ready for a drill: {why}")
    started, results = utc(time.time_ns()), list[Result]()
    hub = Announcement(arguments, place.fleet) if arguments.console else None
    if hub:
        await hub.start()
    await place.announce("DrillStarted", f"Drill by {arguments.who or 'kubectl'}: {', '.join(arguments.faults)}")
    try:
        for fault in arguments.faults:
            results.append(Result(fault, "", utc(time.time_ns()), allowed_seconds=GAPS[ROWS[fault].bound]))
            await _suffer(place, arguments, results[-1], patience)
            _say(arguments, results[-1])
    except NotRecoveredError:
        _say(arguments, results[-1])
        print_problem("the drill has ended: the fleet is not covered")
    finally:
        passed = sum(result.outcome == "passed" for result in results)
        made = report(place.fleet, arguments, started, results)
        signed = await hub.end(made["faults"]) if hub else b""
        if arguments.out:
            with system_errors(f"--out {arguments.out}"):
                document = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
                write_whole(arguments.out, signed or document.encode())
        if arguments.output == "json":
            print(json.dumps(made, indent=2))
        await place.announce("DrillEnded", f"{passed} of {len(arguments.faults)} faults passed")
    return int(passed < len(arguments.faults))


class Announcement:
    """The drill at the hub, which shows a banner until it ends."""

    def __init__(self, arguments: argparse.Namespace, fleet: Fleet) -> None:
        self._hub = HttpHub(console_connection(arguments))
        self._arguments, self._fleet = arguments, fleet
        self._id = ""

    async def start(self) -> None:
        """Announce the drill; UserError if another one runs, or the hub is not reached."""
        body = {"fleet": self._fleet.key, "faults": self._arguments.faults, "who": self._arguments.who}
        answer = await asyncio.to_thread(self._hub.read, "/v1/drills", "drill", body=body, lister=NOT_HERE)
        self._id = str(answer["drill"])

    async def end(self, faults: list[dict[str, Any]]) -> bytes:
        """End the drill; returns the signed report, or nothing after it printed why the hub did not sign."""
        body, deadline = {"faults": faults, "who": self._arguments.who}, time.monotonic() + SIGN_SECONDS
        while True:
            try:
                data = await asyncio.to_thread(self._hub.fetch, f"/v1/drills/{self._id}/end", body=body)
            except UserError as error:
                if isinstance(error, UnreachableError) and time.monotonic() < deadline:
                    await asyncio.sleep(1.0)  # a hub that was deleted starts again
                    continue
                print_problem(f"the report is not signed: {error}")
                return b""
            if self._arguments.output != "json":
                print(f"Signed report {self._id}: `embereye drill show {self._id} --out FILE.pdf` writes it as a PDF.")
            return data


async def _suffer(place: Place, arguments: argparse.Namespace, result: Result, patience: Patience) -> None:
    """Do the harm of `result` and wait for the recovery; NotRecoveredError."""
    try:
        async with ROWS[result.fault].harm(place, arguments) as (result.target, harmed):
            await _recover(place, harmed, result, patience)
    except (UserError, ApiError) as error:
        result.outcome = "refused"
        raise UserError(f"{result.fault}: {error}") from error
    if result.recovered_after_seconds is None:
        result.outcome = "not recovered"
        raise NotRecoveredError
    is_short = result.uncovered_seconds <= result.allowed_seconds + LAG_SECONDS
    result.outcome = "passed" if is_short else "too long"


async def _recover(place: Place, harmed: Sequence[tuple[Any, Any]], result: Result, patience: Patience) -> None:
    """Watch the fleet until it is covered steadily, and note the times in `result`."""
    began = time.monotonic()
    good_since: float | None = None
    dark_since: float | None = None
    while (now := time.monotonic()) < began + patience.recovery:
        status = await place.status()
        is_gone = all([await place.is_gone(kind, before) for kind, before in harmed])
        covered = status.condition("Covered")
        is_covered = covered is not None and covered.status == "True"
        dark_since = None if is_covered else dark_since or now
        if dark_since is not None:
            result.uncovered_seconds = round(max(result.uncovered_seconds, time.monotonic() - dark_since), 1)
        good_since = (good_since or now) if is_gone and not uncovered(status) else None
        if good_since is not None and now - good_since >= patience.steady:
            result.recovered_after_seconds = round(good_since - began, 1)
            return
        await asyncio.sleep(patience.poll)


def uncovered(status: FleetStatus) -> str:
    """Return why the fleet is not covered with all of its shards; empty if it is."""
    for type_, good in (("Covered", "True"), ("Ready", "True"), ("Progressing", "False")):
        condition = status.condition(type_)
        if condition is None or condition.status != good:
            return f"{type_} is {condition.status}: {condition.message}" if condition else f"{type_} is unknown"
    return ""


def report(fleet: Fleet, arguments: argparse.Namespace, started: str, results: Sequence[Result]) -> dict[str, Any]:
    """The report as a document."""
    faults = [camel_keys(asdict(result)) for result in results]
    skipped = list(arguments.faults[len(results) :])
    complete = not skipped and all(result.outcome == "passed" for result in results)
    return {
        "format": 1, "fleet": fleet.key, "who": arguments.who, "started": started, "ended": utc(time.time_ns()),
        "complete": complete, "faults": faults, "notRun": skipped,
    }  # fmt: skip


def _say(arguments: argparse.Namespace, result: Result) -> None:
    if arguments.output == "json":
        return
    after = result.recovered_after_seconds
    recovery = "not recovered in time" if after is None else f"recovered after {after:g} s"
    dark = f"not covered for {result.uncovered_seconds:g} s, allowed {result.allowed_seconds:g} s"
    print(visible(f"{result.fault}: {result.outcome}. {result.target}: {recovery}, {dark}."), flush=True)
