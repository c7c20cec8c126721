"""Figures of a cluster during a soak, from the API server, the kubelets and the containers' logs.

`Figures` runs as tasks for a piece of a soak. It writes the usage of each of our containers to the series, and to the
books: restarts, tracebacks, alerts that begin to fire, and false statements of a fleet's status. `counts` returns log
lines, events, requests, writes and the sizes of databases so far.
"""

import asyncio
import base64
import json
import re
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from harness.cluster.audit import AuditLog, is_write, request_kind
from harness.cluster.books import Books
from harness.cluster.cluster import Cluster, CommandError, Json
from harness.cluster.site import SENSORS, SITE, SYSTEM
from harness.cluster.writes import Changes
from harness.machine.soak import COLUMNS
from harness.matrix.matrix import AlertsWatched
from harness.records.probers import IngestProber

SAMPLE_SECONDS = 20.0
COUNT_SECONDS = 60.0
TRUTH_SECONDS = 2.0
ALERT_SECONDS = 0.5
LATE_SECONDS = 1.0  # delay of this process beyond which its view of a device is not judged
DEADLINE_SECONDS = 5.0  # the sensor fleet's deadline
FALSE_SECONDS = 5.0  # time beyond the deadline in which a status may still claim Covered
ANSWER_SECONDS = 10.0
SILENT = (OSError, TimeoutError, aiohttp.ClientError, CommandError)  # errors of something that a fault has stopped
METRIC = re.compile(r"^(container_\w+)\{([^}]*)\} (\S+)", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
REQUESTS = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)", re.MULTILINE)
STORED = re.compile(r"^apiserver_storage_size_bytes\{[^}]*\} (\S+)", re.MULTILINE)
TRACEBACK = "Traceback (most recent call last)"
MB = 1e6


class ApiReader:
    """Reads from the API server with a kubeconfig's certificate, without a process for each request."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._url = str(cluster["server"])
        self._context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        with tempfile.TemporaryDirectory() as folder:  # the module ssl reads certificates from files only
            path = Path(folder) / "user.pem"
            path.touch(mode=0o600)
            path.write_text(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
            self._context.load_cert_chain(path)
        self._session: aiohttp.ClientSession | None = None

    async def text(self, path: str) -> str:
        """Read a path. Raises one of SILENT."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
            self._session = aiohttp.ClientSession(raise_for_status=True, timeout=timeout)
        async with self._session.get(f"{self._url}{path}", ssl=self._context) as answer:
            return await answer.text()

    async def items(self, path: str) -> list[Json]:
        """Read the objects of a list. Raises one of SILENT."""
        items: list[Json] = json.loads(await self.text(path))["items"]
        return items

    async def close(self) -> None:
        """Close its connections."""
        if self._session:
            await self._session.close()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


@dataclass(frozen=True)
class ContainerUsage:
    """The usage of a container, as cAdvisor reports it."""

    namespace: str
    pod: str
    id: str
    memory_mb: float  # without pages of files, which the kernel can drop
    files_mb: float
    descriptors: int
    threads: int
    cpu_seconds: float  # since its start


def usages(page: str) -> Iterator[ContainerUsage]:
    """Yield the usage of each container of a kubelet's page /metrics/cadvisor."""
    labels: dict[str, dict[str, str]] = {}
    figures: dict[str, dict[str, float]] = {}
    for name, text, value in METRIC.findall(page):
        place = dict(LABEL.findall(text))
        if place.get("container") and place.get("name"):
            labels[place["name"]] = place
            figures.setdefault(place["name"], {})[name.removeprefix("container_")] = float(value)
    for id_, values in figures.items():
        used, anonymous = values.get("memory_working_set_bytes", 0.0), values.get("memory_rss", 0.0)
        yield ContainerUsage(
            labels[id_]["namespace"], labels[id_]["pod"], id_, anonymous / MB, max(0.0, used - anonymous) / MB,
            int(values.get("file_descriptors", 0)), int(values.get("threads", 0)),
            values.get("cpu_usage_seconds_total", 0.0),
        )  # fmt: skip


def sum_requests(page: str) -> Counter[str]:
    """The number of requests of an API server's page /metrics, by verb and resource."""
    counts: Counter[str] = Counter()
    for text, value in REQUESTS.findall(page):
        labels = dict(LABEL.findall(text))
        counts[f"{labels.get('verb', '')} {labels.get('resource', '')}".strip()] += int(float(value))
    return counts


@dataclass
class Restarts:
    """The restarts of containers, by the pods that the API server lists."""

    known: dict[tuple[str, str], int] = field(default_factory=dict)  # uid and container → restarts

    def new(self, pods: list[Json]) -> Iterator[tuple[str, str, int, float]]:
        """Yield (container, reason, exit code, seconds since the Unix epoch) of each restart since the last call."""
        for pod in pods:
            for status in pod["status"].get("containerStatuses", []):
                place = (pod["metadata"]["uid"], status["name"])
                before, self.known[place] = self.known.get(place, 0), status["restartCount"]
                ended = status.get("lastState", {}).get("terminated")
                if status["restartCount"] > before and ended:
                    name = f"{pod['metadata']['name']}/{status['name']}"
                    at = datetime.fromisoformat(ended["finishedAt"]).timestamp()
                    yield name, ended.get("reason", ""), ended["exitCode"], at


@dataclass
class Firing:
    """The alerts that fire now."""

    names: frozenset[str] = frozenset()

    def began(self, alerts: Mapping[str, str]) -> list[str]:
        """The alerts that began to fire since the last call, by `alerts`: name → state."""
        before = self.names
        self.names = frozenset(name for name, state in alerts.items() if state == "firing")
        return sorted(self.names - before)


@dataclass(frozen=True)
class Sources:
    """The parts of a release that `Figures` reads besides the cluster."""

    probers: list[IngestProber]
    database_mb: Callable[[], Awaitable[float]]
    alerts: AlertsWatched | None = None  # None: no Prometheus
    audited: bool = True  # the API server has an audit log


class Figures:
    """Collects the figures of a piece of a soak until cancelled."""

    def __init__(self, cluster: Cluster, books: Books, now: Callable[[], float], sources: Sources) -> None:
        """`now` returns the seconds of soaking so far."""
        self._cluster, self._books, self._folder, self._now = cluster, books, books.folder, now
        self._sources = sources
        self._reader = ApiReader(cluster.kubeconfig)
        self._audit = AuditLog(cluster)
        self._restarts = Restarts()
        self._roles: dict[tuple[str, str], str] = {}  # namespace and pod → component
        self._followed: dict[str, asyncio.Task[None]] = {}  # container's id → its log's task
        self._read_to: dict[str, str] = {}  # container's id → time of the last line that was read
        self._lines: Counter[str] = Counter()
        self._events: dict[str, tuple[str, int]] = {}  # uid → reason and count
        self._requests: Counter[str] = Counter()
        self._served: Counter[str] | None = None  # the API server's own counts at the last call
        self._asked: Counter[str] = Counter()  # the operators' requests
        self._writes: Counter[str] = Counter()
        self._changes = Changes()
        self._firing = Firing()
        self._sizes: dict[str, float] = {}
        self._false: set[str] = set()  # devices about which the status is wrong now
        self._compared = time.monotonic()
        self._missing: set[str] = set()  # errors in this program that were noted

    async def run(self) -> None:
        """Collect until cancelled."""
        if self._sources.audited:
            await self._audit.begin()
        await self._learn_statuses()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeat(self._sample, SAMPLE_SECONDS), name="samples")
                group.create_task(self._repeat(self._sweep, SAMPLE_SECONDS / 4), name="pods")
                group.create_task(self._repeat(self._count, COUNT_SECONDS), name="counts")
                group.create_task(self._repeat(self._compare, TRUTH_SECONDS), name="truth")
                group.create_task(self._repeat(self._watch_alerts, ALERT_SECONDS), name="alerts")
        finally:
            for task in self._followed.values():
                task.cancel()
            await asyncio.gather(*self._followed.values(), return_exceptions=True)
            await self._reader.close()

    async def _repeat(self, work: Callable[[], Any], seconds: float) -> None:
        while True:
            try:
                await work()
            except SILENT as error:
                self._cluster.diary.note_change("figures", f"{work.__name__}: {type(error).__name__}")
            except Exception as error:  # the other figures continue
                if (text := f"a figure is missing: {work.__name__}: {error!r}") not in self._missing:
                    self._missing.add(text)
                    self._books.add("problem", self._now(), text=text)
            await asyncio.sleep(seconds)

    def counts(self) -> dict[str, Any]:
        """Everything counted so far."""
        events: Counter[str] = Counter()
        for reason, count in self._events.values():
            events[reason] += count
        return {"lines": dict(self._lines), "events": dict(events), "requests": dict(self._requests),
                "asked": dict(self._asked), "writes": dict(self._writes), "sizes": self._sizes}  # fmt: skip

    # --- usage ---

    async def _sample(self) -> None:
        nodes = await self._reader.items("/api/v1/nodes")
        for node in nodes:
            path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/metrics/cadvisor"
            try:
                page = await self._reader.text(path)
            except SILENT:
                continue  # a fault has stopped this node
            self._write_samples(self._now(), list(usages(page)))

    def _write_samples(self, at: float, used: list[ContainerUsage]) -> None:
        path = self._folder / "samples.csv"
        lines = [] if path.exists() else [f"{COLUMNS},cpu_seconds"]
        for usage in used:
            role = self._roles.get((usage.namespace, usage.pod))
            if role:
                lines.append(
                    f"{at:.1f},{role},{int(usage.id[:12], 16)},{usage.memory_mb:.2f},{usage.descriptors},"
                    f"{usage.threads},{usage.files_mb:.2f},{usage.cpu_seconds:.2f}"
                )
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    # --- pods and their logs ---

    async def _sweep(self) -> None:
        for namespace in (SYSTEM, SITE):
            pods = await self._reader.items(f"/api/v1/namespaces/{namespace}/pods")
            for pod in pods:
                labels = pod["metadata"].get("labels", {})
                if component := labels.get("app.kubernetes.io/component"):
                    self._roles[namespace, pod["metadata"]["name"]] = component
                    self._follow_logs(namespace, pod, component)
            for name, reason, code, ended in self._restarts.new(pods):
                at = self._now() - (time.time() - ended)
                self._books.add("restart", max(0.0, at), container=name, reason=reason, code=code)

    def _follow_logs(self, namespace: str, pod: Json, component: str) -> None:
        for status in pod["status"].get("containerStatuses", []):
            id_ = status.get("containerID", "")
            task = self._followed.get(id_)
            if "running" in status.get("state", {}) and (task is None or task.done()):
                name = (namespace, pod["metadata"]["name"], status["name"])
                since = self._read_to.get(id_, "")
                self._followed[id_] = asyncio.create_task(self._follow(name, id_, component, since), name="log")

    async def _follow(self, name: tuple[str, str, str], id_: str, component: str, since: str) -> None:
        namespace, pod, container = name
        path = self._folder / "logs" / f"{namespace}.{pod}.{id_.rpartition('/')[2][:12]}.log"
        path.parent.mkdir(exist_ok=True)
        arguments = ["logs", "--follow", "--timestamps", "--namespace", namespace, pod, "--container", container]
        arguments += ["--since-time", since] if since else []
        with path.open("a", encoding="utf-8", buffering=1) as file:  # each line at once: a run may be killed
            async for line in self._cluster.lines(*arguments):
                stamp, _, text = line.partition(" ")
                if stamp <= since:
                    continue  # the server counts in whole seconds
                self._read_to[id_] = stamp
                file.write(f"{line}\n")
                self._lines[component] += 1
                if TRACEBACK in text:
                    self._books.add("problem", self._now(), text=f"{TRACEBACK} in the log of {pod}")

    # --- requests and events ---

    async def _count(self) -> None:
        for event in await self._reader.items("/api/v1/events"):
            if event["metadata"]["namespace"] in {SYSTEM, SITE}:
                self._events[event["metadata"]["uid"]] = (event.get("reason", ""), event.get("count") or 1)
        page = await self._reader.text("/metrics")
        served = sum_requests(page)
        before = served if self._served is None else self._served
        for name, count in served.items():  # a server that starts again counts from zero
            self._requests[name] += count - before[name] if count >= before[name] else count
        self._served = served
        self._sizes["etcd_mb"] = round(max(map(float, STORED.findall(page)), default=0.0) / MB, 1)
        await self.read_writes()
        self._sizes["postgres_mb"] = round(await self._sources.database_mb(), 1)

    async def read_writes(self) -> None:
        """Read the operators' requests since the last call, if there is an audit log."""
        for request in await self._audit.read() if self._sources.audited else ():
            self._asked[request_kind(request)] += 1
            if is_write(request):
                self._note_write(request)

    async def _learn_statuses(self) -> None:
        for resource in ("sensorfleets", "camerafleets"):
            for fleet in await self._reader.items(f"/apis/embereye.dev/v1beta1/{resource}"):
                self._changes.note(resource, fleet["metadata"]["name"], fleet.get("status", {}))

    def _note_write(self, request: dict[str, Any]) -> None:
        kind, name = request_kind(request), request["objectRef"].get("name", "")
        self._writes[kind] += 1
        asked = datetime.fromisoformat(request["requestReceivedTimestamp"]).timestamp()
        at = self._now() - (time.time() - asked)
        changed, is_alive = self._changes.describe(request)
        text = f"{kind} {name}{': ' if changed else ''}{changed}"
        self._books.add("write", max(0.0, at), text=text, name=name, is_alive=is_alive)

    # --- alerts ---

    async def _watch_alerts(self) -> None:
        if self._sources.alerts:
            for name in self._firing.began(await self._sources.alerts.alerts()):
                self._books.add("alert", self._now(), name=name.removeprefix("EmberEye"))

    # --- status ---

    async def _compare(self) -> None:
        """Compare the sensor fleet's status with the acknowledgements that the probed sensors have."""
        started = time.monotonic()
        stalled, self._compared = started - self._compared > TRUTH_SECONDS + LATE_SECONDS, started
        path = f"/apis/embereye.dev/v1beta1/namespaces/{SITE}/sensorfleets/{SENSORS}"
        status = json.loads(await self._reader.text(path)).get("status", {})
        conditions = {entry["type"]: entry["status"] for entry in status.get("conditions", [])}
        if stalled or time.monotonic() - started > LATE_SECONDS:
            return  # this process was slow, and may not have read acknowledgements
        limit = DEADLINE_SECONDS + FALSE_SECONDS
        dark = {p.device for p in self._sources.probers if p.acks and started - p.acks[-1] > limit}
        wrong = dark if conditions.get("Covered") == "True" else set()
        for device in sorted(wrong - self._false):
            self._books.add("problem", self._now(), text=f"Covered, although {device} is dark for {limit:g} s")
        self._false = wrong
