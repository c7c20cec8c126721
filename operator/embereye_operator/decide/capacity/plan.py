"""The resources that a fleet needs: shards, cores, memory and network, from measured costs and target utilization.

`embereye plan` calls `plan` with demands from manifests or options. For each demand, it searches the smallest number of
shards that each stay within the target utilization; cores, memory and network follow from that number. Costs come from
`costs.py`, and are measured. Each `Need` has its arithmetic as sentences, so that a reader can check every result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from embereye.units import counted
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.capacity.costs import Costs
from embereye_operator.decide.scaling.law import CAPACITY

MB = 1e6
# Upper limits, per sensor and per shard, of the latest seconds of data that a sensor shard retains, to cut recordings
# of alarms from.
RECENT_MB = (0.26, 33.6)
MAX_DEVICES = 1_000_000  # largest number of devices in a query
HUB_UTILIZATION = 0.7  # cores; a hub has one, because it is one process with one event loop


@dataclass(frozen=True)
class SensorDemand:
    """A number of equal sensors."""

    name: str
    count: int
    rate: float  # readings/s per sensor
    frame_rate: float  # thermal frames/s per sensor
    capacity: float = CAPACITY  # cores that a shard can use
    limits: Autoscaling = field(default_factory=Autoscaling)
    shards: int = 0  # fixed number without autoscaling; 0: as many as needed


@dataclass(frozen=True)
class CameraDemand:
    """A number of equal cameras."""

    name: str
    count: int
    rate: float  # pictures/s analysed per camera
    codec: str
    width: int
    height: int
    capacity: float = CAPACITY  # cores that a shard can use
    limits: Autoscaling = field(default_factory=Autoscaling)
    shards: int = 0  # fixed number without autoscaling; 0: as many as needed


@dataclass(frozen=True)
class Need:
    """The resources for one demand, and their calculation."""

    name: str
    devices: int
    shards: int
    cores: float  # expected use
    memory_mb: float
    inward: float  # bytes/s from devices
    arithmetic: tuple[str, ...]
    warning: str = ""  # why the declared limits do not suffice


@dataclass(frozen=True)
class Plan:
    """The resources for all demands and the hub."""

    needs: tuple[Need, ...]
    hub: Need

    @property
    def cores(self) -> float:
        """Return the expected CPU use of all processes."""
        return sum(need.cores for need in (*self.needs, self.hub))

    @property
    def memory_mb(self) -> float:
        """Return the memory of all processes."""
        return sum(need.memory_mb for need in (*self.needs, self.hub))

    @property
    def inward(self) -> float:
        """Return the bytes per second from devices."""
        return sum(need.inward for need in self.needs)


def plan(demands: Sequence[SensorDemand | CameraDemand], costs: Costs) -> Plan:
    """Calculate the resources for `demands`, each at its target utilization."""
    needs = tuple(
        _sensors(demand, costs) if isinstance(demand, SensorDemand) else _cameras(demand, costs) for demand in demands
    )
    return Plan(needs, _hub(sum(need.devices for need in needs), costs))


def _sensors(demand: SensorDemand, costs: Costs) -> Need:
    def cores(share: float) -> float:
        readings, frames = (demand.count * rate * share for rate in (demand.rate, demand.frame_rate))
        return costs.sensor_shard + costs.readings.cores(readings) + costs.frames.cores(frames)

    arrivals = demand.count * (demand.rate + demand.frame_rate)
    inward = demand.count * (demand.rate * costs.reading_bytes + demand.frame_rate * costs.frame_bytes)
    frames, sizes = "", f"{demand.rate:g}/s x {costs.reading_bytes:,.0f} B"
    if demand.frame_rate:
        frames = f" + {demand.frame_rate:g} frames/s"
        sizes = f"({sizes} + {demand.frame_rate:g}/s x {costs.frame_bytes:,.0f} B)"
    arrivals_text = f"λ = {demand.count} x ({demand.rate:g} readings/s{frames}) = {arrivals:,.0f}/s"
    sent = inward, f"{demand.count} x {sizes}"
    return _need(demand, cores, (arrivals, arrivals_text), sent, (costs.sensor_shard_mb, costs.sensor_mb), RECENT_MB)


def _cameras(demand: CameraDemand, costs: Costs) -> Need:
    cost, pixels = costs.pictures[demand.codec], demand.width * demand.height
    arrivals = demand.count * demand.rate

    def cores(share: float) -> float:
        return costs.camera_shard + cost.cores(arrivals * share, pixels)

    arrivals_text = (
        f"λ = {demand.count} x {demand.rate:g}/s = {arrivals:,.0f} pictures/s of {demand.width}x{demand.height}"
    )
    memory = costs.camera_shard_mb, costs.camera_mb[demand.codec]
    sent = arrivals * cost.size(pixels), f"{arrivals:,.0f}/s x {cost.size(pixels):,.0f} B"
    return _need(demand, cores, (arrivals, arrivals_text), sent, memory)


def _need(
    demand: SensorDemand | CameraDemand, cores: Callable[[float], float], arriving: tuple[float, str],
    sent: tuple[float, str],
    memory: tuple[float, float], recent: tuple[float, float] = (0.0, 0.0),
) -> Need:  # fmt: skip
    """Calculate a demand's resources; `cores` gives one shard's use for a share of all items.

    `memory` has the MB of a shard and of a device, `recent` the MB of retained data of a device, and of a shard at
    most.
    """
    limits, arrivals, inward = demand.limits, arriving[0], sent[0]
    allowed = limits.target_utilization * demand.capacity
    enough = _fewest(lambda count: cores(1 / count) <= allowed, max(1, demand.count))
    shards = demand.shards or max(enough, limits.min_shards)
    why = ""
    if demand.shards:
        why = f"; spec.shards is {shards}, and autoscaling is off"
    elif shards > enough:
        why = f"; minShards is {shards}"
    per_shard = cores(1 / shards)
    idle = cores(0.0)
    recent_mb = min(demand.count * recent[0], shards * recent[1])
    memory_mb = shards * memory[0] + demand.count * memory[1] + recent_mb
    extra = f" + {recent_mb:.0f} MB of recent data" if recent_mb else ""
    cost = (per_shard - idle) * shards / arrivals if arrivals else 0.0
    steps = (
        f"arrivals  {arriving[1]}",
        f"a shard   {idle:.3f} cores idle, {per_shard:.3f} at λ/{shards} = {arrivals / shards:,.0f}/s: c =  "
        f"{cost * 1e6:,.0f} µs of CPU each",
        f"shards    the fewest that each use at most u x capacity = {limits.target_utilization:g} x "
        f"{demand.capacity:g} = {allowed:g} cores: {enough}{why}",
        f"cores     {shards} x {per_shard:.3f} = {shards * per_shard:.3f}",
        f"memory    {shards} x {memory[0]:.0f} MB + {demand.count} x {memory[1]:.2f} MB{extra} = {memory_mb:,.0f} MB",
        f"network   {sent[1]} = {inward / MB:.2f} MB/s ({inward * 8 / MB:.1f} Mbit/s) from devices",
    )
    warning = ""
    if (alone := cores(1 / enough)) > allowed:
        warning = f"one device alone needs {alone:.2f} cores, and a shard can use {allowed:g}"
    elif shards < enough:
        warning = f"spec.shards is {shards}, autoscaling is off, and {enough} are needed"
    elif not demand.shards and shards > limits.max_shards:
        warning = f"spec.autoscaling.maxShards is {limits.max_shards}, and {shards} are needed"
    return Need(demand.name, demand.count, shards, shards * per_shard, memory_mb, inward, steps, warning)


def _fewest(enough: Callable[[int], bool], most: int) -> int:
    """Return the smallest number up to `most` that is `enough`; `most` if none is."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _hub(devices: int, costs: Costs) -> Need:
    cores = costs.hub_idle + devices * costs.hub_device
    memory = costs.hub_mb + devices * costs.hub_device_mb
    steps = (
        f"cores     {costs.hub_idle:.3f} + {counted(devices, 'device')} x {costs.hub_device * 1e6:.1f} µs/s = "
        f"{cores:.3f}",
        f"memory    {costs.hub_mb:.0f} MB + {devices} x {costs.hub_device_mb * 1e3:.1f} kB = {memory:,.0f} MB",
    )
    warning = ""
    if cores > HUB_UTILIZATION:
        warning = (
            f"a hub is one process on one core; {_max_hub_devices(costs):,} devices use {HUB_UTILIZATION:g}: "
            "run a hub for each site or group of zones"
        )
    return Need("hub", devices, 1, cores, memory, 0.0, steps, warning)


def _max_hub_devices(costs: Costs) -> int:
    spare = max(0.0, HUB_UTILIZATION - costs.hub_idle)
    if not costs.hub_device:  # too little to be measured
        return MAX_DEVICES if spare else 0
    return int(spare / costs.hub_device)


def max_devices(demand: SensorDemand | CameraDemand, whole: Plan, machine_cores: float, costs: Costs) -> int:
    """Return how many devices like those of `demand` one machine can handle, together with the rest of `whole`."""
    need = next(entry for entry in whole.needs if entry.name == demand.name)
    rest_of_plan = [entry for entry in whole.needs if entry is not need]
    spare = machine_cores * demand.limits.target_utilization - sum(entry.cores for entry in rest_of_plan)
    rest = sum(entry.devices for entry in rest_of_plan)

    def too_many(count: int) -> bool:
        alone = plan([replace(demand, count=count)], costs)
        return alone.cores + rest * costs.hub_device > spare

    return min(_fewest(too_many, MAX_DEVICES) - 1, max(0, _max_hub_devices(costs) - rest))
