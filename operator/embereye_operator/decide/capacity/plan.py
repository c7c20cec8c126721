"""How much a fleet takes: shards, cores, memory and network, by measured costs and the scaling law's utilization."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from embereye.units import counted
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.capacity.costs import Costs
from embereye_operator.decide.scaling.law import CAPACITY

MB = 1e6
# At most what a sensor shard keeps of the latest seconds, from which recordings of alarms are cut: of each sensor, and
# of all together.
RECENT_MB = (0.26, 33.6)
MOST_DEVICES = 1_000_000  # that are asked about
HUB_UTILIZATION = 0.7  # of the one core that a hub has: it is one process with one event loop


@dataclass(frozen=True)
class SensorDemand:
    """Sensors alike."""

    name: str
    count: int
    rate: float  # readings/s of each
    frame_rate: float  # thermal frames/s of each
    capacity: float = CAPACITY  # cores that a shard may use
    limits: Autoscaling = field(default_factory=Autoscaling)
    shards: int = 0  # that there are, since nobody scales them; 0: as many as are needed


@dataclass(frozen=True)
class CameraDemand:
    """Cameras alike."""

    name: str
    count: int
    rate: float  # pictures/s of each that are looked at
    codec: str
    width: int
    height: int
    capacity: float = CAPACITY  # cores that a shard may use
    limits: Autoscaling = field(default_factory=Autoscaling)
    shards: int = 0  # that there are, since nobody scales them; 0: as many as are needed


@dataclass(frozen=True)
class Need:
    """What one demand takes, and how that was calculated."""

    name: str
    devices: int
    shards: int
    cores: float  # that it is expected to use
    memory_mb: float
    inward: float  # bytes/s from devices
    arithmetic: tuple[str, ...]
    warning: str = ""  # what the plan cannot do as it is declared


@dataclass(frozen=True)
class Plan:
    """What everything takes."""

    needs: tuple[Need, ...]
    hub: Need

    @property
    def cores(self) -> float:
        """Expected use of all processes."""
        return sum(need.cores for need in (*self.needs, self.hub))

    @property
    def memory_mb(self) -> float:
        """Of all processes."""
        return sum(need.memory_mb for need in (*self.needs, self.hub))

    @property
    def inward(self) -> float:
        """Bytes/s from devices."""
        return sum(need.inward for need in self.needs)


def plan(demands: Sequence[SensorDemand | CameraDemand], costs: Costs) -> Plan:
    """What `demands` take, each at its target utilization."""
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
    said = f"λ = {demand.count} x ({demand.rate:g} readings/s{frames}) = {arrivals:,.0f}/s"
    sent = inward, f"{demand.count} x {sizes}"
    return _need(demand, cores, (arrivals, said), sent, (costs.sensor_shard_mb, costs.sensor_mb), RECENT_MB)


def _cameras(demand: CameraDemand, costs: Costs) -> Need:
    cost, pixels = costs.pictures[demand.codec], demand.width * demand.height
    arrivals = demand.count * demand.rate

    def cores(share: float) -> float:
        return costs.camera_shard + cost.cores(arrivals * share, pixels)

    said = f"λ = {demand.count} x {demand.rate:g}/s = {arrivals:,.0f} pictures/s of {demand.width}x{demand.height}"
    memory = costs.camera_shard_mb, costs.camera_mb[demand.codec]
    sent = arrivals * cost.size(pixels), f"{arrivals:,.0f}/s x {cost.size(pixels):,.0f} B"
    return _need(demand, cores, (arrivals, said), sent, memory)


def _need(
    demand: SensorDemand | CameraDemand, cores: Callable[[float], float], arriving: tuple[float, str],
    sent: tuple[float, str],
    memory: tuple[float, float], recent: tuple[float, float] = (0.0, 0.0),
) -> Need:  # fmt: skip
    """`cores` says what one shard needs for a share of everything, `memory` the MB of a shard and of a device.

    `recent` has the MB of what is kept of the latest seconds, of each device and of a shard at most.
    """
    limits, arrivals, inward = demand.limits, arriving[0], sent[0]
    allowed = limits.target_utilization * demand.capacity
    enough = _fewest(lambda count: cores(1 / count) <= allowed, max(1, demand.count))
    shards = demand.shards or max(enough, limits.min_shards)
    why = ""
    if demand.shards:
        why = f"; spec.shards is {shards}, and nobody scales it"
    elif shards > enough:
        why = f"; minShards asks for {shards}"
    each = cores(1 / shards)
    own = cores(0.0)
    kept_mb = min(demand.count * recent[0], shards * recent[1])
    memory_mb = shards * memory[0] + demand.count * memory[1] + kept_mb
    kept = f" + {kept_mb:.0f} MB of recent data" if kept_mb else ""
    cost = (each - own) * shards / arrivals if arrivals else 0.0
    steps = (
        f"arrivals  {arriving[1]}",
        f"a shard   {own:.3f} cores for itself, at λ/{shards} = {arrivals / shards:,.0f}/s {each:.3f}: c = "
        f"{cost * 1e6:,.0f} µs of CPU each",
        f"shards    the fewest of which each needs at most u x capacity = {limits.target_utilization:g} x "
        f"{demand.capacity:g} = {allowed:g} cores: {enough}{why}",
        f"cores     {shards} x {each:.3f} = {shards * each:.3f}",
        f"memory    {shards} x {memory[0]:.0f} MB + {demand.count} x {memory[1]:.2f} MB{kept} = {memory_mb:,.0f} MB",
        f"network   {sent[1]} = {inward / MB:.2f} MB/s ({inward * 8 / MB:.1f} Mbit/s) from devices",
    )
    warning = ""
    if (alone := cores(1 / enough)) > allowed:
        warning = f"one device alone asks for {alone:.2f} cores, and a shard may use {allowed:g}"
    elif shards < enough:
        warning = f"spec.shards is {shards}, nobody scales it, and {enough} are needed"
    elif not demand.shards and shards > limits.max_shards:
        warning = f"spec.autoscaling.maxShards is {limits.max_shards}, and {shards} are needed"
    return Need(demand.name, demand.count, shards, shards * each, memory_mb, inward, steps, warning)


def _fewest(enough: Callable[[int], bool], most: int) -> int:
    """The smallest number up to `most` that is `enough`; `most` where none is."""
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
            f"a hub is one process with one core, which {_most_of_a_hub(costs):,} devices fill to {HUB_UTILIZATION:g}: "
            "have a hub for each site or group of zones"
        )
    return Need("hub", devices, 1, cores, memory, 0.0, steps, warning)


def _most_of_a_hub(costs: Costs) -> int:
    spare = max(0.0, HUB_UTILIZATION - costs.hub_idle)
    if not costs.hub_device:  # too little to be measured
        return MOST_DEVICES if spare else 0
    return int(spare / costs.hub_device)


def most_of(demand: SensorDemand | CameraDemand, whole: Plan, machine_cores: float, costs: Costs) -> int:
    """How many devices like those of `demand` one machine carries in all, with the rest of `whole` on it as well."""
    mine = next(need for need in whole.needs if need.name == demand.name)
    others = [need for need in whole.needs if need is not mine]
    spare = machine_cores * demand.limits.target_utilization - sum(need.cores for need in others)
    rest = sum(need.devices for need in others)

    def too_many(count: int) -> bool:
        alone = plan([replace(demand, count=count)], costs)
        return alone.cores + rest * costs.hub_device > spare

    return min(_fewest(too_many, MOST_DEVICES) - 1, max(0, _most_of_a_hub(costs) - rest))
