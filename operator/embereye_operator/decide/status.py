"""The status of a fleet, built from facts: one condition for each question that a user asks.

At the end of a pass, `reconcile` collects its `Facts`, and `build_status` derives all conditions and counts from them.
A status is written only for news: with fresh numbers alone, the previous status is returned, and no write follows. So
Degraded and the reasons of dark devices keep their text if only numbers in it differ, and loads and ledgers must change
by a factor. News that people need at once are written at once, above all dark devices; the steps of a change, and what
ends soon, only if they last (`lasting_seconds`). An unchanged status is written again after OBSERVED_SECONDS, so
that its age shows if it is still current.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime

from embereye.shard.coverage import NEVER_HEARD, NO_CHECK_IN, SILENT
from embereye.units import SECOND, counted, listed, utc
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.roster_pb2 import FleetLedger
from embereye.v1.shard_pb2 import ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.api.cameras import Camera, exposed_passwords
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, from_manifest
from embereye_operator.api.status import (
    DIFFERS,
    MAX_ADDRESSES,
    MAX_DARK,
    MAX_MESSAGE,
    Condition,
    ConditionStatus,
    DarkDevice,
    DeviceSummary,
    FleetStatus,
    HoldingOperator,
    LastScale,
    LedgerSummary,
    LoadSummary,
    RolloutSummary,
)
from embereye_operator.decide.exposure import Exposure
from embereye_operator.decide.intent import Intent
from embereye_operator.decide.placement.assignments import build_candidate
from embereye_operator.decide.placement.record import Move
from embereye_operator.decide.rollout.rollout import Rollout
from embereye_operator.decide.scaling.followers import Judgement
from embereye_operator.decide.scaling.law import Decision, measure
from embereye_operator.decide.snapshot import Snapshot

LIST_REASONS = ("DeviceListMissing", "DeviceListInvalid")  # worst first
NOT_WRITTEN = "StatusNotWritten"  # reason of Events about a status that the API server refuses
SINCE_RESTART = "not heard since its shard started"
SINCE = "silent since"
LIST_LOST = "its device list cannot be read, and its settings are lost"
LOAD_FACTOR = 2.0  # a load is written again once it grew or shrank by this factor, and with every other change
# A ledger is written again once its losses grew by more than this share. Devices that send are no news, and every other
# write of the status includes the current ledger.
LOSS_BAND = 0.25
LASTING_SECONDS = 5.0  # how long news that nobody needs at once must last before they are written
# The same for loads, ledgers and the text of Degraded alone. Metrics and the console show them at once.
NUMBERS_SECONDS = 60.0
# The conditions of a fleet that is well, and in which no change is in progress.
AT_REST = {"Ready": "True", "Progressing": "False", "Degraded": "False", "Covered": "True"}
OBSERVED_SECONDS = 900.0  # after which an unchanged status is written with the present time


@dataclass(frozen=True)
class Facts:
    """The observations and actions of one pass."""

    snapshot: Snapshot
    intent: Intent  # the placement in force
    existing: Sequence[str]  # existing shards at the end of the pass
    statuses: Mapping[str, ShardStatus | None]  # at the end of the pass; None: no answer
    redeclared: Mapping[str, int]  # device id → first epoch with its current declaration
    decision: Decision
    scaled: LastScale | None  # by this pass
    lead: float  # seconds until a new shard is ready
    ledger: FleetLedger | None  # None: unknown
    operator: HoldingOperator | None = None
    exposure: Exposure | None = None  # None: not exposed
    rollout: Rollout | None = None  # None: unchanged since the last pass
    scaler: Judgement | None = None  # of the autoscaler that follows the operator's number
    problems: Mapping[str, str] = field(default_factory=dict)  # reason → sentence, worst first
    device_lists: str = ""  # the device lists for the next leader
    heard: Mapping[str, int] = field(default_factory=dict)  # see FleetMemory

    @property
    def fleet(self) -> Fleet:
        """The fleet of the pass."""
        return self.snapshot.fleet

    @property
    def placement(self) -> Mapping[str, str]:
        """The shard of each device."""
        return self.intent.plan.placement

    @property
    def moving(self) -> Mapping[str, Move]:
        """The shard that still watches each device in hand-over."""
        return self.intent.plan.moving

    @property
    def time_ns(self) -> int:
        """The time to write into the status."""
        return self.snapshot.wall_time_ns


def nanoseconds(timestamp: str) -> int:
    """Parse an RFC 3339 time; 0 if it is malformed."""
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return 0
    return int(parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()) * SECOND


def read_status(stored: Manifest | None) -> FleetStatus:
    """Parse the stored status; an empty one if it is absent or malformed."""
    try:
        status: FleetStatus = from_manifest(FleetStatus, stored or {})
    except (TypeError, ValueError, AttributeError):
        return FleetStatus()
    return status


def build_status(facts: Facts, previous: FleetStatus) -> FleetStatus:
    """Return the status to write; equal to `previous` if no change is worth a write."""
    ready = [shard for shard in facts.intent.wanted if not why_not_ready(facts, shard)]
    devices, load = _devices(facts, previous.devices), measured_load(facts)
    conditions = (
        _ready(facts, ready),
        _progressing(facts),
        _degraded(facts, previous),
        _covered(facts, devices),
        *_reachable(facts),
        _scaling_active(facts, previous),
        _metrics_available(facts),
        _access_restricted(facts),
        *((_exposed(facts.exposure),) if facts.exposure else ()),
        *_passwords_separate(facts),
        *_candidate_differs(facts, previous),
    )
    status = FleetStatus(
        operator=facts.operator,
        observed_generation=facts.fleet.generation,
        last_observed=previous.last_observed,
        shards=len(facts.existing),
        ready_shards=len(ready),
        selector=facts.fleet.names.selector_text,
        devices=devices,
        load=previous.load if load and previous.load and _alike(load, previous.load) else load,
        ledger=previous.ledger,
        required_shards=facts.decision.required,
        last_scale=_last_scale(facts, previous),
        placement_epoch=facts.intent.epoch,
        rollout=_rollout(facts, previous),
        addresses=facts.exposure.addresses[:MAX_ADDRESSES] if facts.exposure else (),
        device_lists=facts.device_lists,
        conditions=tuple(_with_transition_time(condition, previous, facts) for condition in conditions),
    )
    ledger = _ledger(facts.ledger) if facts.ledger else None
    news = bool(ledger and _has_news(ledger, previous.ledger))
    if status == previous and not news and not is_old(previous.last_observed, facts.time_ns):
        return status
    return replace(status, load=load, ledger=ledger or previous.ledger, last_observed=utc(facts.time_ns))


def lasting_seconds(status: FleetStatus, previous: FleetStatus) -> float:
    """Return how many seconds `status` must differ from `previous`, the stored one, before it is written.

    0 for the answer to a changed manifest, for devices that became dark, and for a fleet that is well and at rest.
    """
    if status.observed_generation != previous.observed_generation or _has_become_dark(status, previous):
        return 0.0
    if _without_numbers(status) == _without_numbers(previous):
        return 0.0 if is_old(previous.last_observed, nanoseconds(status.last_observed or "")) else NUMBERS_SECONDS
    answers = {condition.type: condition.status for condition in status.conditions}
    return 0.0 if AT_REST.items() <= answers.items() else LASTING_SECONDS


def _has_become_dark(status: FleetStatus, previous: FleetStatus) -> bool:
    now, before = status.devices, previous.devices
    answer, earlier = (entry and entry.status for entry in (status.condition("Covered"), previous.condition("Covered")))
    if answer not in {"True", earlier} or now.declared - now.covered > before.declared - before.covered:
        return True
    is_complete = len(before.dark) == before.declared - before.covered
    return is_complete and not {entry.id for entry in now.dark} <= {entry.id for entry in before.dark}


def _without_numbers(status: FleetStatus) -> FleetStatus:
    conditions = tuple(replace(entry, message="") if entry.type == "Degraded" else entry for entry in status.conditions)
    return replace(status, load=None, ledger=None, last_observed=None, conditions=conditions)


def with_problem(status: FleetStatus, reason: str, why: str, previous: FleetStatus) -> FleetStatus:
    """Return `status` with one more reason in Degraded, worst first."""
    degraded = status.condition("Degraded")
    known = degraded.message if degraded and degraded.status == "True" else ""
    condition = _condition("Degraded", True, reason, "; ".join(filter(None, (why, known))))
    before = previous.condition("Degraded")
    since = before.last_transition_time if before and before.status == "True" else status.last_observed or ""
    condition = replace(condition, last_transition_time=since, observed_generation=status.observed_generation)
    others = [entry for entry in status.conditions if entry.type != "Degraded"]
    return replace(status, conditions=(*others, condition))


def describe_changes(before: FleetStatus, now: FleetStatus) -> str:
    """Describe the news in `now` for the log; empty if only its time is new."""
    news = []
    for condition in now.conditions:
        known = before.condition(condition.type)
        if known is None or (known.status, known.reason) != (condition.status, condition.reason):
            news.append(f"{condition.type} is {condition.status} ({condition.reason})")
        elif known.message != condition.message:
            news.append(f"{condition.type}: {condition.message[:200]}")
    if before.devices.summary != now.devices.summary:
        news.append(f"{now.devices.summary} devices covered")
    counts = ("shards", "ready_shards", "required_shards", "placement_epoch")
    pairs = [(name.replace("_", " "), getattr(before, name), getattr(now, name)) for name in counts]
    news += [f"{name} {old} → {new}" for name, old, new in pairs if old != new]
    if not news:
        # A refresh of an old status brings the present time and load.
        noise = {"last_observed", *(("load",) if before.load and now.load and _alike(before.load, now.load) else ())}
        names = [field.name for field in fields(now) if getattr(before, field.name) != getattr(now, field.name)]
        news = [name.replace("_", " ") for name in names if name not in noise]
    return ", ".join(news)


def is_old(observed: str | None, now_ns: int) -> bool:
    """True if a status of that time has to be written again; also if the time is unknown or ahead of ours."""
    age = (now_ns - nanoseconds(observed)) / SECOND if observed else math.inf
    return not -OBSERVED_SECONDS < age < OBSERVED_SECONDS


def why_not_ready(facts: Facts, shard: str) -> str:
    """Return the reason why `shard` does not do its part of the placement in force; '' if it does."""
    status = facts.statuses.get(shard)
    if status is None:
        if shard not in facts.existing:
            return f"{shard} is being created"
        why = facts.snapshot.waiting.get(shard)
        return f"{shard} cannot be reached: {why}" if why else f"{shard} cannot be reached"
    if status.draining:
        return f"{shard} is draining"
    if status.epoch != facts.intent.epoch:
        return f"{shard} works under epoch {status.epoch}, not yet {facts.intent.epoch}"
    if not status.ready:
        return f"{shard} is starting"
    if shard not in facts.intent.plan.members:
        return f"{shard} is about to take over devices"
    return ""


def _with_transition_time(condition: Condition, previous: FleetStatus, facts: Facts) -> Condition:
    before = previous.condition(condition.type)
    unchanged = before is not None and before.status == condition.status and before.last_transition_time
    return replace(
        condition,
        last_transition_time=unchanged or utc(facts.time_ns),
        observed_generation=facts.fleet.generation,
    )


def _condition(type_: str, status: bool, reason: str, message: str) -> Condition:
    answer: ConditionStatus = "True" if status else "False"
    return Condition(type_, answer, reason, message[:MAX_MESSAGE])


def _ready(facts: Facts, ready: Sequence[str]) -> Condition:
    if len(ready) == len(facts.intent.wanted):
        message = f"{len(ready)} of {counted(len(facts.intent.wanted), 'shard is', 'shards are')} ready"
        return _condition("Ready", True, "AllShardsReady", message)
    reasons = [why for shard in facts.intent.wanted if (why := why_not_ready(facts, shard))]
    unreachable = any(facts.statuses.get(shard) is None and shard in facts.existing for shard in facts.intent.wanted)
    return _condition("Ready", False, "ShardUnreachable" if unreachable else "ShardsNotReady", listed(reasons))


def _progressing(facts: Facts) -> Condition:
    if facts.fleet.spec.paused:
        return _condition("Progressing", False, "Paused", "spec.paused is true: the operator changes nothing")
    if unknown := facts.problems.get("HubUnknown"):
        return _condition("Progressing", False, "HubUnknown", f"nothing is changed until the hub is known: {unknown}")
    if leaving := [shard for shard in facts.existing if shard not in facts.intent.wanted]:
        message = f"{listed(leaving)} will be deleted once other shards have taken over"
        return _condition("Progressing", True, "ShardsLeaving", message)
    if facts.rollout and facts.rollout.pending:
        pending = counted(len(facts.rollout.pending), "shard does", "shards do")
        message = f"{pending} not run the changed pod yet: {facts.rollout.waits}"
        return _condition("Progressing", True, "RollingOut", message)
    if facts.moving:
        owners = sorted({facts.placement[device] for device in facts.moving if device in facts.placement})
        message = f"{listed(owners)} take over {counted(len(facts.moving), 'device')}"
        return _condition("Progressing", True, "HandingOver", message)
    if waiting := [why for shard in facts.intent.wanted if (why := why_not_ready(facts, shard))]:
        return _condition("Progressing", True, "ShardsComing", listed(waiting))
    return _condition("Progressing", False, "Settled", f"placement {facts.intent.epoch} is in force everywhere")


def _degraded(facts: Facts, previous: FleetStatus) -> Condition:
    problems = dict(facts.problems)
    if less := _less_detected(facts):
        problems["DetectionDegraded"] = less
    if less := _less_done(facts):
        problems["ShardDegraded"] = less
    if not problems:
        return _condition("Degraded", False, "AsExpected", "")
    condition = _condition("Degraded", True, next(iter(problems)), "; ".join(problems.values()))
    return _previous_if_alike(condition, previous)


def _access_restricted(facts: Facts) -> Condition:
    """Build AccessRestricted: False, as a warning, if devices need not prove anything."""
    access = facts.fleet.spec.access
    if access is None:
        message = (
            "spec.access is not set: anyone who can reach the ports can send data for any device; name tokensRef or "
            "networks, or say open: true"
        )
        return _condition("AccessRestricted", False, "NotDeclared", message)
    if access.open:
        message = "spec.access.open is true: anyone who can reach the ports can send data for any device"
        return _condition("AccessRestricted", False, "Open", message)
    required = [f"a token of Secret {access.tokens_ref.name}"] if access.tokens_ref else []
    required += [counted(len(access.networks), "network")] if access.networks else []
    if access.tls and access.tls.clients:
        required.append(f"certificates of Secret {access.tls.clients.ca_ref.name}")
    return _condition("AccessRestricted", True, "Declared", f"devices are accepted by {' and '.join(required)}")


def _passwords_separate(facts: Facts) -> tuple[Condition, ...]:
    """Build PasswordsSeparate: False, as a warning, if the fleet contains passwords; else there is none."""
    cameras = [device for device in facts.fleet.devices if isinstance(device, Camera)]
    if not (why := exposed_passwords(cameras)):
        return ()
    return (_condition("PasswordsSeparate", False, "InManifest", why),)


def _candidate_differs(facts: Facts, previous: FleetStatus) -> tuple[Condition, ...]:
    """Build CandidateDiffers; none without a candidate. Without the hub's answer, the previous one stays."""
    candidate, declared = build_candidate(facts.fleet.spec), facts.fleet.spec.detection.candidate
    if candidate is None or declared is None:
        return ()
    result = facts.ledger.candidate if facts.ledger and facts.ledger.HasField("candidate") else None
    if result is None or result.id != candidate.id:
        before = previous.condition(DIFFERS)
        if result is None and before is not None:
            return (before,)
        message = f"no shard has reported candidate {candidate.name} yet"
        return (_condition(DIFFERS, False, "NotCompared", message),)
    message = (
        f"candidate {candidate.name} and the detection in force differ in {counted(result.alarms, 'alarm')} "
        f"(at most {declared.max_differences}) and {counted(result.pre_alarms, 'pre-alarm')}: "
        "`embereye detection diff` lists them"
    )
    differs = result.alarms > declared.max_differences
    if result.problem and not differs:
        return (_condition(DIFFERS, False, "CannotJudge", f"candidate {candidate.name}: {result.problem}"),)
    return (_condition(DIFFERS, differs, "AlarmsDiffer" if differs else "AlarmsAgree", message),)


def _rollout(facts: Facts, previous: FleetStatus) -> RolloutSummary | None:
    plan, before = facts.rollout, previous.rollout
    if plan is None:
        return before
    earlier = (before.from_ if before.image == plan.image else before.image) if before else ""
    pending = len(plan.pending)
    return RolloutSummary(
        plan.image, plan.before or earlier, len(facts.existing) - pending, pending, (plan.failed or plan.waits)[:1024]
    )


def _exposed(exposure: Exposure) -> Condition:
    """Build Exposed: True if devices outside the cluster can reach every address of spec.expose."""
    if exposure.missing:
        sentences = [sentence for some in exposure.missing.values() for sentence in some]
        return _condition("Exposed", False, next(iter(exposure.missing)), "; ".join(sentences))
    addresses = [
        f"{known.protocol} at {known.address}" for known in exposure.addresses if not known.shard and not known.device
    ]
    return _condition("Exposed", True, "Advertised", f"devices outside the cluster use {', '.join(addresses)}")


def _previous_if_alike(condition: Condition, previous: FleetStatus) -> Condition:
    """Return the previous condition if only numbers in its message differ, else `condition`."""
    before = previous.condition(condition.type)
    same = before and (before.status, before.reason) == (condition.status, condition.reason)
    return before if before and same and shape(before.message) == shape(condition.message) else condition


def _less_detected(facts: Facts) -> str:
    """List the devices whose detection is limited, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for shard, status in sorted(facts.statuses.items()):
        for device in status.devices if status and status.epoch == facts.intent.epoch else ():
            if device.degraded and facts.placement.get(device.id) == shard:
                by_reason.setdefault(shape(device.degraded), [device.degraded]).append(device.id)
    return "; ".join(f"{listed(ids)}: {why}" for why, *ids in by_reason.values())


def _less_done(facts: Facts) -> str:
    """List the shards whose work is limited, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for shard, status in sorted(facts.statuses.items()):
        if status and status.degraded:
            by_reason.setdefault(shape(status.degraded), [status.degraded]).append(shard)
    return "; ".join(f"{listed(shards)}: {why}" for why, *shards in by_reason.values())


def _covered(facts: Facts, devices: DeviceSummary) -> Condition:
    if not devices.declared:
        kind = facts.fleet.kind
        why = "; ".join(facts.snapshot.unknown_lists) or (
            f"list them in spec.{kind}, or in the ConfigMap that spec.{kind}From names"
        )
        return _condition("Covered", False, "NothingDeclared", f"no {kind} are declared: {why}")
    if devices.covered == devices.declared and facts.snapshot.unknown_lists:
        reason = next(reason for reason in LIST_REASONS if reason in facts.problems)
        unknown = f"some devices are not known: {listed(facts.snapshot.unknown_lists)}"
        return _condition("Covered", False, reason, unknown)
    if devices.covered == devices.declared:
        every = "the one device is" if devices.declared == 1 else f"all {devices.declared} devices are"
        return _condition("Covered", True, "AllCovered", f"{every} watched")
    owners = {facts.placement.get(device.id, "") for device in facts.snapshot.devices}
    lost = sorted(owner for owner in owners if owner and facts.statuses.get(owner) is None)
    dark = [f"{entry.id} ({entry.reason})" for entry in devices.dark]
    count = devices.declared - devices.covered
    dark_devices = f"{count} of {counted(devices.declared, 'device')} {'is' if count == 1 else 'are'}"
    message = f"{dark_devices} dark: {listed(dark, total=count)}"
    if lost:
        return _condition("Covered", False, "ShardUnreachable", f"no answer from {listed(lost)}; {message}")
    return _condition("Covered", False, "DevicesDark", message)


def _reachable(facts: Facts) -> tuple[Condition, ...]:
    """The condition of the hub's routes to people, if it has any."""
    if facts.snapshot.is_reaching_people is None:
        return ()
    if facts.snapshot.is_reaching_people:
        return (_condition("Reachable", True, "RoutesWork", "every route to people works"),)
    why = "a route to people is dead, or was not confirmed in time; the console and `embereye notify list` say which"
    return (_condition("Reachable", False, "RoutesFailing", why),)


def _scaling_active(facts: Facts, previous: FleetStatus) -> Condition:  # noqa: PLR0911 -- one answer per state
    mode = facts.fleet.spec.autoscaling.mode
    if facts.fleet.spec.paused:
        return _condition("ScalingActive", False, "Paused", "spec.paused is true")
    if mode == "none":
        return _condition("ScalingActive", False, "Disabled", "spec.autoscaling.mode is none: you set spec.shards")
    if "ShardsContested" in facts.problems:
        return _previous_if_alike(
            _condition("ScalingActive", False, "ShardsContested", facts.problems["ShardsContested"]), previous
        )
    if mode in {"hpa", "keda"}:
        if "ScalerMissing" in facts.problems:
            return _condition("ScalingActive", False, "NotInstalled", facts.problems["ScalerMissing"])
        if facts.scaler:
            return _previous_if_alike(Condition("ScalingActive", *facts.scaler), previous)
    elif "TwoScalers" in facts.problems:
        return _condition("ScalingActive", False, "TwoScalers", facts.problems["TwoScalers"])
    decision, shards = facts.decision, facts.fleet.spec.shards
    if not decision.known:
        return _condition("ScalingActive", False, "Holding", decision.reason)
    if facts.fleet.spec.autoscaling.observe:
        right = f"{counted(decision.shards, 'shard')} instead of {shards} would be needed"
        message = f"observe is true, so nothing is scaled: {right}"
        return _condition("ScalingActive", False, "Observing", message)
    required = f"{counted(decision.required, 'shard is', 'shards are')} required"
    if decision.required > decision.shards:
        return _condition("ScalingActive", True, "AboutToGrow", required)
    if decision.required < decision.shards:
        message = f"{required}; the others stay for the stabilization window"
        return _condition("ScalingActive", True, "Stabilizing", message)
    return _condition("ScalingActive", True, "AsRequired", required)


def _metrics_available(facts: Facts) -> Condition:
    missing = [shard for shard in facts.intent.wanted if facts.statuses.get(shard) is None]
    if missing:
        return _condition("MetricsAvailable", False, "ShardUnreachable", f"no measurements from {listed(missing)}")
    return _condition("MetricsAvailable", True, "AllMeasured", "every shard reports its load")


def _devices(facts: Facts, previous: DeviceSummary) -> DeviceSummary:
    before = {entry.id: entry for entry in previous.dark}
    # Reports under an older epoch count: a shard that does not know the latest one still watches its former devices.
    # They do not count for a device that was declared differently then: the new one is not watched yet.
    reported = {
        (shard, device.id): device
        for shard, status in facts.statuses.items()
        if status
        for device in status.devices
        if status.epoch >= facts.redeclared.get(device.id, 0)
    }
    dark = []
    for device in facts.snapshot.devices:
        if reason := _why_dark(facts, device, reported):
            known = before.get(device.id)
            for unheard in (NEVER_HEARD, NO_CHECK_IN):
                if reason.startswith(unheard) and (heard := _heard_before(facts, device.id, known)):
                    reason = heard + reason.removeprefix(unheard)
            # Numbers alone that grew are no news, and not worth a write every two seconds.
            if known and shape(known.reason) == shape(reason):
                reason = known.reason
            dark.append(DarkDevice(device.id, device.zone, reason))
    dark += [DarkDevice(device.id, device.zone, LIST_LOST) for device in facts.snapshot.incomplete]
    declared = len(facts.snapshot.devices) + len(facts.snapshot.incomplete)
    covered = declared - len(dark)
    return DeviceSummary(declared, covered, f"{covered}/{declared}", tuple(dark[:MAX_DARK]))


def _heard_before(facts: Facts, device: str, known: DarkDevice | None) -> str:
    """Return since when a device that its present shard has not heard is silent; empty if nobody ever heard it."""
    if heard_ns := facts.heard.get(device):
        return f"{SINCE} {utc(heard_ns)}"
    if known and known.reason.startswith((SINCE, SINCE_RESTART)):  # written by an operator that knew more
        return re.split("[;,]", known.reason, maxsplit=1)[0]
    return SINCE_RESTART if device in facts.heard else ""


def _why_dark(facts: Facts, device: Device, reported: Mapping[tuple[str, str], DeviceStatus]) -> str:
    owner = facts.placement.get(device.id)
    if owner is None:
        return "no shard owns it yet"
    holder = facts.moving.get(device.id)
    if holder and (report := reported.get((holder.holder, device.id))) and report.covered:
        return ""
    if (status := reported.get((owner, device.id))) is None:
        return why_not_ready(facts, owner) or f"{owner} does not report it"
    if status.covered:
        return ""
    if status.heard_ns and status.reason.startswith(SILENT):  # by the shard's clock, which may differ from ours
        return f"{SINCE} {utc(status.heard_ns)}"
    return status.reason or "its shard gives no reason"


def shape(reason: str) -> str:
    """Replace the numbers in `reason`: a change of numbers alone is no news."""
    return reason if reason.startswith(SINCE) else re.sub(r"\d+(\.\d+)?", "#", reason)


def measured_load(facts: Facts) -> LoadSummary | None:
    """Return the present load of the shards, rounded; None if none answers."""
    measured = measure([status.load for shard in facts.intent.wanted if (status := facts.statuses.get(shard))])
    if measured is None:
        return None
    return LoadSummary(
        arrival_rate=_rounded(measured.arrival_rate),
        utilization=_rounded(measured.utilization),
        queue_depth=int(_rounded(measured.backlog)),
        oldest_age=_rounded(measured.oldest_age),
        cost=float(f"{measured.cost:.2g}"),
        lead=_rounded(facts.lead),
    )


def _ledger(ledger: FleetLedger) -> LedgerSummary:
    return LedgerSummary(
        time=utc(ledger.time_ns),
        offered=ledger.offered,
        analysed=ledger.analysed,
        shed=ledger.shed,
        duplicate=ledger.duplicate,
        rejected=ledger.rejected,
    )


def _has_news(now: LedgerSummary, before: LedgerSummary | None) -> bool:
    if before is None or now.offered < before.offered:  # less: the hub has lost its store
        return True
    pairs = ((now.shed, before.shed), (now.rejected, before.rejected))
    return any(lost > known * (1 + LOSS_BAND) for lost, known in pairs)


def _rounded(value: float) -> float:
    return float(f"{value:.2g}") if value >= 0.01 else 0.0


def _alike(a: LoadSummary, b: LoadSummary) -> bool:
    # Differences below a quantity's floor are noise: 20 items/s, 20 % of a core, 1,000 items, 5 seconds.
    pairs = (
        (a.arrival_rate, b.arrival_rate, 20.0),
        (a.utilization, b.utilization, 0.2),
        (a.queue_depth, b.queue_depth, 1000.0),
        (a.oldest_age, b.oldest_age, 5.0),
    )
    return all(abs(x - y) <= max(floor, max(x, y) * (1 - 1 / LOAD_FACTOR)) for x, y, floor in pairs)


def _last_scale(facts: Facts, previous: FleetStatus) -> LastScale | None:
    if facts.scaled:
        return facts.scaled
    before, after, last = previous.shards, len(facts.existing), previous.last_scale
    if not before or before == after or (last and last.to == facts.fleet.spec.shards):
        return last
    measured = measure([status.load for status in facts.statuses.values() if status])
    inputs = measured.inputs(facts.lead) if measured else {}
    reason = f"spec.shards was set to {facts.fleet.spec.shards}"
    return LastScale(utc(facts.time_ns), before, facts.fleet.spec.shards, reason, inputs)
