"""Run fleets on this machine: the manifests and decisions of a cluster, with local processes instead of pods.

`Up.run` starts the hub, then reconciles each fleet periodically with a `LocalRuntime`, whose shards are processes.
Other tasks follow the manifests' files, the hub's alarm feed and the zones' states for the display. At the end
simulators stop first, then shards, then the hub, so that no evidence is lost.
"""

import asyncio
import contextlib
import errno
import getpass
import json
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import grpc
from prometheus_client import CollectorRegistry

from embereye.client.alarms import ALIVE_MS, SilentError, listen
from embereye.hub.access import admin_file
from embereye.hub.access.keeper import ADMIN, NAME
from embereye.levels import Level, ZoneState
from embereye.process.addresses import free_ports
from embereye.process.condition import Condition
from embereye.process.files import write_whole
from embereye.process.heap import collect_garbage, freeze_heap
from embereye.process.http.pages import metrics_pages, serve_pages
from embereye.process.lifecycle import UserError
from embereye.process.reason import reason_of
from embereye.process.tasks import Tasks, first_of
from embereye.process.telemetry.runtime_metrics import RuntimeMetrics
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns, stepped_ns
from embereye.process.tls.client import ClientTls, dial
from embereye.units import SECOND, bracketed, counted
from embereye.v1.access_pb2 import CreateLinkRequest
from embereye.v1.access_pb2_grpc import AccessStub
from embereye.v1.alarms_pb2 import AlarmEvent, SubscribeRequest, Zone, ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.zone.sentences import sign
from embereye.zone.unstored import Unstored
from embereye_operator.api.cameras import Camera, exposed_passwords
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.api.status import FleetStatus, LoadSummary
from embereye_operator.decide.claims import Claims
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.scaling.trace import Trace
from embereye_operator.errors import UnavailableError
from embereye_operator.monitoring.fleets import FleetMetrics, FleetReport, FleetView
from embereye_operator.reconcile.reconcile import reconcile
from embereye_operator.runtime.local.processes import Exit, ProcessSpec, Supervisor
from embereye_operator.runtime.local.runtime import (
    HOST,
    HUB,
    OWN_NAMES,
    LocalRuntime,
    PortTakenError,
    check_port,
    embereye_command,
    identified,
)
from embereye_operator.up.display import Display, FleetRow, Lines, LiveTable, ZoneRow, is_steerable
from embereye_operator.up.folder import load_fleets, versions
from embereye_operator.up.options import UpOptions, check_access, check_simulators, wanted_ports
from embereye_operator.up.site import write_site
from embereye_operator.up.watchdog import notify_watchdog

logger = logging.getLogger(__name__)
SIMULATE_FIRE = "embereye.dev/simulate-fire"
RECONCILE_SECONDS = 1.0  # between passes over an unchanged fleet
CHANGING_SECONDS = 0.1  # between passes over a fleet with changes in progress
FILES_SECONDS = 0.25  # between checks of the manifests
TARGETS = "prometheus-targets.json"
ENDING_SECONDS = 20.0  # time for processes of a killed run to end
READY_SECONDS = 30.0  # time for the hub to answer
START_SECONDS = 120.0  # least time for everything to become ready, if the run time is limited
HUB_TRIES = 3  # starts of a hub that reports why it ends, before `embereye up` gives up with that reason
FIRST_WORD_SECONDS = 2.0  # time after the deadline in which a new fleet's device is awaited instead of dark
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO}  # errors of the disk
MAKE_ROOM = "free space on its disk, or make it writable; until then fleets cannot change"


def target(job: str, address: str, **labels: str) -> dict[str, Any]:
    """Build an entry of a Prometheus target file."""
    return {"targets": [address], "labels": {"job": job, **labels}}


@dataclass
class FleetState:
    """A fleet and the history of its passes."""

    fleet: Fleet
    failing: Condition = field(default_factory=Condition)
    memory: FleetMemory = field(default_factory=FleetMemory)
    backoff: Backoff = field(default_factory=lambda: Backoff(floor=0.2, cap=5.0))
    due: float = 0.0  # monotonic seconds
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  # locked during a pass, and during deletion
    status: FleetStatus | None = None  # of the latest successful pass
    load: LoadSummary | None = None  # measured in it
    passes: int = 0
    failures: int = 0
    seconds: float = 0.0  # sum over all passes
    latest: float = 0.0  # monotonic seconds of the latest pass that succeeded
    began: float = 0.0  # monotonic seconds when all its shards were first ready
    was_covered: bool = False  # all its devices were covered once

    def is_awaiting(self, now: float, *, up: bool, well: bool, declared: int) -> bool:
        """True if it is so new that its uncovered devices may simply not have sent anything yet."""
        self.was_covered = self.was_covered or well
        self.began = self.began or (now if up else 0.0)
        patience = self.fleet.spec.deadline / SECOND + FIRST_WORD_SECONDS
        return up and declared > 0 and not self.was_covered and now - self.began <= patience

    def report(self) -> FleetReport:
        """Return the fleet's state for its metrics."""
        fleet, status = self.fleet, self.status
        view = FleetView(fleet, status, status.required_shards, self.load) if status else None
        conditions = {entry.type: entry.status == "True" for entry in status.conditions} if status else {}
        return FleetReport(
            fleet.namespace, fleet.kind, fleet.name, view, conditions,
            self.passes, self.failures, self.seconds, self.latest,
        )  # fmt: skip


class Up:
    """One run of `embereye up`: hub, shards and simulators as the manifests declare them."""

    def __init__(self, options: UpOptions, fleets: dict[str, Fleet]) -> None:
        self._options = options
        self._fleets = {key: FleetState(fleet) for key, fleet in fleets.items()}
        # All declared and chosen ports, because not all are open when the next one is chosen.
        self._taken = {options.hub_port, options.console_port, options.metrics_port}
        self._taken.update(*map(options.ports, fleets.values()))
        control, self._hub_metrics_port = free_ports(2, taken=self._taken)
        self._taken |= {control, self._hub_metrics_port}
        self._hub_control = f"{HOST}:{control}"
        self._settings = Settings(
            image="embereye",
            hub=self._hub_control,
            host=HOST,
            claims=Claims(),
            trace=Trace(options.data / "scaling").write,
        )
        self._supervisor: Supervisor
        self._runtime: LocalRuntime
        self._display: Display
        self._zones: Sequence[Zone] = ()
        self._cursor = 0  # of the newest displayed event
        self._dirty = asyncio.Event()
        self._listened: set[int] = set()  # ports, of the manifests in force
        self._connected = False
        self._metrics_port = options.metrics_port
        self._token = ""
        self._targets: str | None = ""  # as last written; None: writing failed
        self._unstored = Unstored()
        self._unwritable = Condition(first_only=True)  # the data folder cannot be written
        self._versions = versions(options.manifests)  # as last accepted or rejected

    async def run(self, stop: asyncio.Event, *, patient: bool = False) -> int:
        """Start everything, run until `stop`, and stop everything in an order that loses no evidence.

        `patient`: wait for ports that processes of the previous run may still use.
        """
        options = self._options
        fleets = [state.fleet for state in self._fleets.values()]
        check_access(options, fleets)
        check_simulators(options, fleets)
        if not await self._await_ports(fleets, stop, ENDING_SECONDS if patient else 0.0):
            return 0
        self._supervisor = Supervisor(None if options.log_here else options.data / "logs", self._process_ended)
        life = timedelta(seconds=options.certificate_life)
        self._runtime = LocalRuntime(
            options.data, self._hub_control, self._supervisor, life, options.reach, self._taken
        )
        registry = CollectorRegistry()
        runtime_metrics = RuntimeMetrics(registry, lambda: self._runtime.credentials)
        registry.register(FleetMetrics(lambda: [state.report() for state in self._fleets.values()]))
        pages = await serve_pages(metrics_pages(registry), HOST, options.metrics_port)
        self._metrics_port = pages.sockets[0].getsockname()[1]
        started = time.monotonic()
        self._display = self._make_display()
        try:
            async with Tasks() as tasks:
                tasks.start(notify_watchdog(), name="watchdog")
                # The first pass decides the number of shards, within minShards and maxShards.
                self._display.say(f"starting the hub, and shards for {', '.join(self._fleets)}")
                await self._start_hub()
                await self._simulate()
                await self._reconcile_due(0.0)
                tasks.start(self._keep_reconciling(), name="reconcile")
                tasks.start(self._follow_alarms(), name="follow-alarms")
                tasks.start(self._follow_files(stop), name="follow-files")
                tasks.start(self._keep_showing(), name="show")
                tasks.start(self._runtime.identities.renew_periodically(), name="keep-identities")
                tasks.start(self._runtime.credentials.follow(), name="follow-identity")
                tasks.start(runtime_metrics.run(), name="event-loop-lag")
                tasks.start(collect_garbage(), name="collect-garbage")
                limit = None if options.seconds is None else max(options.seconds, START_SECONDS)
                if not await self._until_ready(stop, limit):
                    self._display.say(f"not ready after {time.monotonic() - started:.0f} s", style="bold red")
                    return 1
                freeze_heap()
                if not stop.is_set():
                    self._announce(time.monotonic() - started, await self._sign_in_link())
                await first_of(stop.wait(), tasks.failed.wait(), timeout=options.seconds)
                return int(tasks.failed.is_set())
        finally:
            self._display.say("stopping")
            pages.close()
            await self._stop()
            self._display.close()

    async def _stop(self) -> None:
        names = self._supervisor.names
        simulators = [name for name in names if name.startswith("simulate-")]
        await self._supervisor.stop_all(simulators)
        await self._supervisor.stop_all([name for name in names if name not in (*simulators, "hub")])
        await self._supervisor.stop("hub")
        await self._runtime.close()

    def _make_display(self) -> Display:
        if self._options.json:
            return Lines(sys.stderr)
        if is_steerable(sys.stdout):
            return LiveTable([f"EmberEye   console {self._options.console}   Ctrl-C stops"])
        return Lines()

    async def _await_ports(self, fleets: Sequence[Fleet], stop: asyncio.Event, seconds: float) -> bool:
        """Check ports as `_check_ports` does, but wait some seconds for occupied ones; False if `stop` comes first."""
        deadline = time.monotonic() + seconds
        logged = False
        while not stop.is_set():
            try:
                self._check_ports(fleets)
            except PortTakenError as error:
                if time.monotonic() >= deadline:
                    raise
                if not logged:
                    logged, port = True, str(error).partition(":")[0]
                    Lines(sys.stderr).say(f"{port}: the previous run was killed, and some processes are still ending")
                await first_of(stop.wait(), timeout=0.2)
            else:
                return True
        return False

    def _check_ports(self, fleets: Iterable[Fleet]) -> None:
        """Raise UserError if two purposes share one port, or another program uses it."""
        wanted = wanted_ports(self._options, fleets)
        for port, wanted_port in wanted.items():
            if port not in self._listened:
                check_port(port, wanted_port.purpose, wanted_port.remedy, wanted_port.host)
        self._listened = set(wanted)
        self._taken |= self._listened

    def _dial_hub(self) -> grpc.aio.Channel:
        """Open a channel to the hub; with TLS if other machines can reach it."""
        with contextlib.suppress(OSError, ValueError):  # on a read error, use the previous token
            self._token = admin_file.read(self._options.token_file)
        tls = ClientTls(self._runtime.identities.authority, server_name="localhost")
        return dial(self._options.hub, tls if self._options.reach.is_outer else None, token=self._token)

    def _process_ended(self, ended: Exit) -> None:
        self._display.say(str(ended), style="bold yellow")
        self._dirty.set()

    async def _start_hub(self) -> None:
        options, folder = self._options, self._options.data / "hub"
        folder.mkdir(parents=True, exist_ok=True)
        self._token = admin_file.prepare(self._options.token_file)
        identities, reach = self._runtime.identities, options.reach
        if reach.is_outer:
            identities.add_names(HUB, tuple(dict.fromkeys((*OWN_NAMES, reach.advertised, *options.allowed_hosts))))
        webhooks = folder / "webhooks.json"
        if options.webhooks is not None:
            write_whole(webhooks, json.dumps(options.webhooks).encode(), private=True)
        command = embereye_command("hub", "--host", HOST, "--outer-host", bracketed(options.reach.listen),
                                   *(("--webhooks", str(webhooks)) if options.webhooks is not None else ()),
                                   *options.hub_arguments,
                                   *(f"--allowed-host={name}" for name in options.allowed_hosts),
                                   "--base-path", options.base_path,
                                   "--grpc-port", str(options.hub_port),
                                   "--http-port", str(options.console_port),
                                   "--metrics-port", str(self._hub_metrics_port),
                                   "--control-port", self._hub_control.rpartition(":")[2],
                                   "--identity", str(identities.folder(HUB)),
                                   *(("--tls", str(identities.folder(HUB))) if reach.is_outer else ()),
                                   "--data", str(folder))  # fmt: skip
        write_site(options.data, options.site)
        alive = f"http://{HOST}:{self._hub_metrics_port}/healthz"
        environment = {"EMBEREYE_CREDENTIALS": str(self._runtime.login_folder)}  # for logins typed in the console
        await self._supervisor.ensure(ProcessSpec("hub", command, environment, alive))
        deadline = time.monotonic() + READY_SECONDS
        async with self._dial_hub() as link:
            while True:
                try:
                    answer = await AlarmsStub(link).Zones(ZonesRequest(), timeout=1.0)
                except grpc.aio.AioRpcError as error:
                    hub = self._supervisor["hub"]
                    why = hub.last_line.removeprefix("embereye: ")
                    if why and hub.restarts >= HUB_TRIES:
                        raise UserError(f"the hub cannot be started: {why} (log: {hub.log or 'above'})") from error
                    if time.monotonic() > deadline:
                        raise UserError(
                            f"the hub does not answer on {self._options.hub}: its log is {hub.log or 'above'}"
                        ) from error
                    await asyncio.sleep(0.1)
                else:
                    self._cursor = answer.cursor
                    self._show_open_alarms(answer.zones)
                    return

    def _show_open_alarms(self, zones: Iterable[Zone]) -> None:
        """Show the zones that are in alarm since an earlier run: fire there is not a new alarm."""
        alarmed = [zone for zone in zones if ZoneState(zone.state) is not ZoneState.NORMAL]
        for zone in alarmed:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(zone.since_ns / SECOND))
            state, where = ZoneState(zone.state), f"{zone.namespace}/{zone.name}"
            text = f"{state.word.upper()} {where} since {since}, from an earlier run: {zone.why}"
            self._display.say(text, style="bold white on red" if state is ZoneState.ALARM else "bold")
        latched = [zone for zone in alarmed if ZoneState(zone.state) is not ZoneState.PRE_ALARM]
        if latched:
            zone = latched[0]
            steps = ["reset"] if ZoneState(zone.state) is not ZoneState.ALARM else ["ack", "reset"]
            where = f"{zone.namespace}/{zone.name}"
            command = " && ".join(self._options.command("alarms", step, where) for step in steps)
            self._display.say(f"reset the alarm in the console, or with {command}")

    async def _reconcile(self, state: FleetState) -> None:
        async with state.busy:
            if self._fleets.get(state.fleet.key) is state:  # it may have been removed meanwhile
                await self._pass(state)

    async def _pass(self, state: FleetState) -> None:
        key = state.fleet.key
        state.passes += 1
        started = time.monotonic()
        try:
            fleet = self._current(state.fleet)
            outcome = await reconcile(fleet, self._runtime.parts, now_ns, self._settings, state.memory, stepped_ns)
        except Exception as error:
            state.failures += 1
            pause = state.backoff.next()
            state.due = time.monotonic() + pause
            reason, remedy = reason_of(error), ""
            if isinstance(error, OSError) and error.errno in UNWRITABLE:
                reason, remedy = f"--data {self._options.data} cannot be written ({error.strerror})", f": {MAKE_ROOM}"
            if state.failing.fail(reason):
                if not remedy and not isinstance(error, UserError):
                    logger.exception("%s: cannot be reconciled", key)
                self._display.say(f"{key}: cannot be reconciled: {reason}{remedy}", style="bold red")
        else:
            if state.failing.clear():
                self._display.say(f"{key}: is reconciled again")
            state.backoff.reset()
            state.status, state.load, state.latest = outcome.status, outcome.load, time.monotonic()
            state.due = state.latest + (RECONCILE_SECONDS if outcome.complete else CHANGING_SECONDS)
        finally:
            state.seconds += time.monotonic() - started

    def _current(self, fleet: Fleet) -> Fleet:
        """Return the fleet as an API server would store it: with its status, and scaled."""
        status = self._runtime.statuses.get(fleet.key, {})
        manifest = {**fleet.manifest, "status": status}
        shards = self._runtime.scales.get(fleet.key)
        if shards is None:
            return replace(fleet, manifest=manifest)
        manifest["spec"] = {**manifest["spec"], "shards": shards}
        return replace(fleet, manifest=manifest, spec=replace(fleet.spec, shards=shards))

    async def _reconcile_due(self, now: float) -> None:
        await asyncio.gather(*(self._reconcile(state) for state in self._fleets.values() if state.due <= now))
        with contextlib.suppress(UnavailableError):  # a restarting hub gets it in the next round
            await self._runtime.retain(list(self._fleets))
        self._write_statuses()

    def _write_statuses(self) -> None:
        """Write the fleets' states, and show once that and why they cannot be written, and once that they can again."""
        data, unwritable = self._options.data, self._runtime.write_statuses()
        if not unwritable:
            if self._unwritable.clear():
                self._display.say(f"--data {data} can be written again")
        elif self._unwritable.fail(unwritable):
            self._display.say(f"--data {data} cannot be written ({unwritable}): {MAKE_ROOM}", style="bold red")

    async def _keep_reconciling(self) -> None:
        while True:
            await self._reconcile_due(time.monotonic())
            self._write_targets()
            await first_of(self._dirty.wait(), timeout=0.25)
            if self._dirty.is_set():
                self._dirty.clear()
                for state in self._fleets.values():
                    state.due = 0.0

    def _write_targets(self) -> None:
        """Write the addresses of metrics for Prometheus' file_sd_configs, with the labels of a cluster."""
        data = self._options.data
        targets = [
            target("embereye-operator", f"{HOST}:{self._metrics_port}"),
            target("embereye-hub", f"{HOST}:{self._hub_metrics_port}"),
        ]
        for state in self._fleets.values():
            fleet = state.fleet
            for shard, addresses in self._runtime.endpoints(fleet)["shards"].items():
                labels = {"namespace": fleet.namespace, "kind": fleet.kind, "fleet": fleet.name, "shard": shard}
                targets.append(target("embereye-shard", addresses["metrics"].split("/")[2], **labels))
        text = json.dumps(targets, indent=1)
        if text == self._targets:
            return
        try:
            write_whole(data / TARGETS, text.encode())
            (data / TARGETS).chmod(0o644)  # Prometheus may be another user
        except OSError as error:
            if self._targets is not None:
                logger.warning("%s: cannot write the list of metrics: %s", data, error)
            self._targets = None
        else:
            self._targets = text

    async def _until_ready(self, stop: asyncio.Event, seconds: float | None) -> bool:
        """Wait until everything works or `stop` is set; False after `seconds` without either, None: no limit."""
        began = time.monotonic()
        while not stop.is_set() and not all(row.up for row in self._fleet_rows()):
            if seconds is not None and time.monotonic() - began > seconds:
                return False
            await first_of(stop.wait(), timeout=0.1)
        return True

    async def _sign_in_link(self) -> str:
        """Return a console URL that signs this user in, once."""
        try:
            name = getpass.getuser()
        except (KeyError, OSError):  # the system has no name for this user
            name = ""
        request = CreateLinkRequest(name=name if NAME.fullmatch(name) else ADMIN)
        try:
            async with self._dial_hub() as link:
                created = await AccessStub(link).CreateLink(request, timeout=5.0)
        except grpc.aio.AioRpcError:
            return self._options.console  # the hub is restarting; `embereye access link` prints a link later
        return self._options.console.rstrip("/") + created.path

    def _announce(self, seconds: float, link: str) -> None:
        endpoints: dict[str, Any] = {
            "console": self._options.console,
            "signIn": link,
            "adminTokenFile": str(self._options.token_file.resolve()),
            "hubMetrics": f"http://{HOST}:{self._hub_metrics_port}/metrics",
            "hub": f"{bracketed(self._options.reach.advertised)}:{self._options.hub_port}",
            "metrics": f"http://{HOST}:{self._metrics_port}/metrics",
            "data": str(self._options.data.resolve()),
            "fleets": {key: self._runtime.endpoints(state.fleet) for key, state in self._fleets.items()},
        }
        if self._options.json:
            print(json.dumps(endpoints), flush=True)
            return
        self._display.say(
            f"ready after {seconds:.1f} s: console {self._options.console}, hub gRPC {endpoints['hub']}", style="bold"
        )
        if self._options.log_here:
            # A service's log is stored and forwarded, and its readers must not become admins.
            self._display.say(f"sign in by a link: {self._options.link_command()}")
        else:
            self._display.pin(f"sign in, once, within the hour: {link}")
        for key, addresses in endpoints["fleets"].items():
            ports = ", ".join(f"{name} {address}" for name, address in addresses["service"].items())
            self._display.say(f"{key}: {ports or 'its shards dial its cameras'}")
        self._warn_of_passwords()

    def _warn_of_passwords(self) -> None:
        for key, state in self._fleets.items():
            if why := exposed_passwords(device for device in state.fleet.devices if isinstance(device, Camera)):
                self._display.say(f"{key}: {why}", style="yellow")

    async def _simulate(self) -> None:
        wanted: dict[str, ProcessSpec] = {}
        for state in self._fleets.values():
            if self._options.is_simulated(state.fleet):
                fire = state.fleet.annotations.get(SIMULATE_FIRE, "")
                wanted |= {spec.name: spec for spec in self._runtime.simulators(state.fleet, fire)}
        for name in self._supervisor.names:
            if name.startswith("simulate-") and name not in wanted:
                await self._supervisor.stop(name)
        for spec in wanted.values():
            await self._supervisor.ensure(spec)

    async def _follow_files(self, stop: asyncio.Event) -> None:
        """Apply changed manifests once two checks in a row see the same version, because some editors write in steps.

        The files are polled, not watched. Other programs may use up the user's watches, and a folder may be unreadable.
        Network file systems report no events, and a redirected link causes none in its target's folder.
        """
        seen = self._versions
        while not await first_of(stop.wait(), timeout=FILES_SECONDS):
            before, seen = seen, await asyncio.to_thread(versions, self._options.manifests)
            if seen != before or seen == self._versions:
                continue
            self._versions = seen
            try:
                fleets = load_fleets(self._options.manifests)
                self._check_change(fleets)
                check_access(self._options, fleets.values())
                check_simulators(self._options, fleets.values())
                self._check_ports(fleets.values())
            except UserError as error:
                self._display.say(f"change rejected: {error}", style="bold yellow")
                continue
            await self._apply_fleets(fleets)

    def _check_change(self, fleets: dict[str, Fleet]) -> None:
        for key, fleet in fleets.items():
            if key in self._fleets:
                parse_fleet(fleet.manifest, old=self._fleets[key].fleet.manifest)

    async def _apply_fleets(self, fleets: dict[str, Fleet]) -> None:
        for key in [key for key in self._fleets if key not in fleets]:
            state = self._fleets.pop(key)
            async with state.busy:  # a pass in progress would create the deleted objects again
                await self._runtime.delete_fleet(state.fleet)
            if self._settings.claims:
                self._settings.claims.release(key)
            self._display.say(f"{key}: removed from the manifests, stopped")
        for key, fleet in fleets.items():
            current = self._fleets.get(key)
            if current is None:
                self._fleets[key] = FleetState(fleet)
                self._display.say(f"{key}: new")
            elif (current.fleet.manifest, current.fleet.spec) != (fleet.manifest, fleet.spec):
                if fleet.spec.shards != current.fleet.spec.shards:
                    self._runtime.scales.pop(key, None)  # a person's number applies until the next measurement
                current.fleet = identified(fleet, current.fleet.generation + 1)
                self._display.say(f"{key}: changed")
        self._warn_of_passwords()
        self._dirty.set()
        await self._simulate()

    async def _follow_alarms(self) -> None:
        backoff, request = Backoff(floor=0.2, cap=2.0), SubscribeRequest(alive_ms=ALIVE_MS, unstored=True)
        request.cursor = self._cursor
        while True:
            try:
                async with self._dial_hub() as link:
                    async for event in listen(AlarmsStub(link).Subscribe(request)):
                        backoff.reset()
                        if news := self._unstored.news(event):
                            self._display.say(news, style="bold red")
                        if not event.unstored:
                            request.cursor = event.cursor
                            self._print_event(event)
            except SilentError as error:
                logger.info("alarm feed: %s", error)
            except grpc.aio.AioRpcError as error:
                logger.info("alarm feed: %s", error.details())
            await asyncio.sleep(backoff.next())

    def _print_event(self, event: AlarmEvent) -> None:
        where = f"{event.namespace}/{event.zone}"
        match event.type:
            case AlarmEvent.TYPE_FAULT:
                self._display.say(f"FAULT {where}: {event.why}", style="yellow")
            case AlarmEvent.TYPE_FAULT_CLEARED:
                self._display.say(f"fault cleared {where}: {event.why}", style="green")
            case AlarmEvent.TYPE_STATE:
                state = ZoneState(event.state).word
                alarm = ZoneState(event.state) is ZoneState.ALARM
                word, style = (state.upper(), "bold white on red") if alarm else (state, "bold")
                self._display.say(f"{word} {where}: {event.why}", style=style)
            case AlarmEvent.TYPE_ALIVE:
                pass
            case _:
                burns = event.type == AlarmEvent.TYPE_EVIDENCE and ZoneState(event.state) is ZoneState.ALARM
                self._display.say(f"{where}: {event.why}", style="bold red" if burns else "")

    async def _keep_showing(self) -> None:
        while True:
            try:
                async with self._dial_hub() as link:
                    while True:
                        self._zones = (await AlarmsStub(link).Zones(ZonesRequest(), timeout=2.0)).zones
                        self._connected = True
                        self._display.show(self._fleet_rows(), self._zone_rows())
                        await asyncio.sleep(0.5)
            except grpc.aio.AioRpcError:
                self._connected = False
                self._display.show(self._fleet_rows(), self._zone_rows())
            await asyncio.sleep(0.5)

    def _fleet_rows(self) -> list[FleetRow]:
        return [self._fleet_row(state) for state in self._fleets.values()]

    def _fleet_row(self, state: FleetState) -> FleetRow:
        status = self._runtime.statuses.get(state.fleet.key, {})
        conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
        covered = conditions.get("Covered", {})
        devices = status.get("devices", {})
        ready, wanted = status.get("readyShards", 0), self._current(state.fleet).spec.shards
        watched, declared = devices.get("covered", 0), devices.get("declared", len(state.fleet.devices))
        up = ready == wanted and status.get("observedGeneration") == state.fleet.generation
        well = covered.get("status") == "True" and not state.failing
        awaiting = state.is_awaiting(time.monotonic(), up=up, well=well, declared=declared) and not state.failing
        why = "" if covered.get("status") == "True" else covered.get("message", "starting")
        if awaiting:
            why = f"{counted(declared - watched, 'device has', 'devices have')} not sent any data yet"
        return FleetRow(
            name=state.fleet.key,
            ready=f"{ready}/{wanted}",
            covered=f"{watched}/{declared}",
            up=up,
            well=well,
            why=state.failing.why or why,
            awaiting=awaiting,
        )

    def _zone_rows(self) -> list[ZoneRow]:
        rows = []
        for zone in self._zones:
            # Without an answer from the hub the last state is outdated, and must not look "normal".
            state = ZoneState(zone.state).word if self._connected else "unknown"
            faults = [f"{fault.device}: {fault.reason}" for fault in zone.faults]
            signs = [sign(item) for item in zone.contributions if item.level > Level.CLEAR]
            why = "; ".join(signs + faults) if self._connected else "the hub does not answer"
            rows.append(ZoneRow(f"{zone.namespace}/{zone.name}", state, f"{zone.covered}/{zone.declared}", why))
        return rows
