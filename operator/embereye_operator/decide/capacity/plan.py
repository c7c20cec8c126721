"""How much a fleet takes: shards, cores, memory, network, by the scaling law's own first term and measured costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.capacity.costs import Costs
from embereye_operator.decide.scaling.law import CAPACITY, Measured, terms

MB = 1e6


@dataclass(frozen=True)
class SensorDemand:
    """Sensors alike."""

    name: str
    count: int
    rate: float  # readings/s of each
    frame_rate: float  # thermal frames/s of each
    capacity: float = CAPACITY  # cores that a shard may use
    limits: Autoscaling = field(default_factory=Autoscaling)


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


@dataclass(frozen=True)
class Need:
    """What one demand takes, and how that was calculated."""

    name: str
    devices: int
    shards: int
    cores: float  # that it is expected to use
    memory_mb: float
    inward: float  # bytes/s from devices
    per_device: float  # cores of one device more
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
    per_device = demand.rate * costs.reading + demand.frame_rate * costs.frame
    inward = demand.count * (demand.rate * costs.reading_bytes + demand.frame_rate * costs.frame_bytes)
    arrivals = demand.count * (demand.rate + demand.frame_rate)
    steps = [
        f"arrivals  λ = {demand.count} x ({demand.rate:g} readings/s + {demand.frame_rate:g} frames/s) "
        f"= {arrivals:,.0f}/s",
        f"work      {demand.count} x ({demand.rate:g} x {costs.reading * 1e6:.1f} µs + {demand.frame_rate:g} x "
        f"{costs.frame * 1e6:.1f} µs) = {demand.count * per_device:.3f} cores",
    ]
    memory = costs.sensor_shard_mb, costs.sensor_mb
    return _need(demand, arrivals, per_device, inward, memory, costs, steps)


def _cameras(demand: CameraDemand, costs: Costs) -> Need:
    cost, pixels = costs.pictures[demand.codec], demand.width * demand.height
    picture, size = cost.seconds(pixels), cost.size(pixels)
    arrivals = demand.count * demand.rate
    steps = [
        f"arrivals  λ = {demand.count} x {demand.rate:g}/s = {arrivals:,.0f} pictures/s",
        f"cost      c = {cost.each * 1e3:.2f} ms + {cost.per_megapixel * 1e3:.2f} ms/MP x {pixels / 1e6:.2f} MP = "
        f"{picture * 1e3:.2f} ms of CPU each",
        f"work      λ*c = {arrivals * picture:.3f} cores",
    ]
    memory = costs.camera_shard_mb, costs.camera_mb[demand.codec]
    return _need(demand, arrivals, demand.rate * picture, arrivals * size, memory, costs, steps)


def _need(
    demand: SensorDemand | CameraDemand, arrivals: float, per_device: float, inward: float,
    memory: tuple[float, float], costs: Costs, steps: list[str],
) -> Need:  # fmt: skip
    limits, work = demand.limits, demand.count * per_device
    measured = Measured(arrivals, work / arrivals if arrivals else 0.0, 0, 0.0, 0.0)
    sums = terms(measured, limits, lead=0.0, capacity=demand.capacity)
    shards = max(1, sums.shards)
    cores = work + shards * costs.shard_idle
    memory_mb = shards * memory[0] + demand.count * memory[1]
    steps += [
        f"shards    ceil(λ*c / u / capacity) = ceil({work:.3f} / {limits.target_utilization:g} / {demand.capacity:g}) "
        f"= {shards}",
        f"cores     {work:.3f} + {shards} x {costs.shard_idle:.3f} for a shard itself = {cores:.3f}",
        f"memory    {shards} x {memory[0]:.0f} MB + {demand.count} x {memory[1]:.2f} MB = {memory_mb:,.0f} MB",
        f"network   {inward / MB:.2f} MB/s ({inward * 8 / MB:.1f} Mbit/s) from devices",
    ]
    warning = ""
    if shards > limits.max_shards:
        warning = f"spec.autoscaling.maxShards is {limits.max_shards}, and {shards} are needed"
    elif per_device > demand.capacity * limits.target_utilization:
        warning = f"one device alone asks for {per_device:.2f} of a shard's {demand.capacity:g} cores"
    return Need(demand.name, demand.count, shards, cores, memory_mb, inward, per_device, tuple(steps), warning)


def _hub(devices: int, costs: Costs) -> Need:
    cores = costs.hub_idle + devices * costs.hub_device
    memory = costs.hub_mb + devices * costs.hub_device_mb
    steps = (
        f"cores     {costs.hub_idle:.3f} + {devices} devices x {costs.hub_device * 1e6:.1f} µs/s = {cores:.3f}",
        f"memory    {costs.hub_mb:.0f} MB + {devices} x {costs.hub_device_mb * 1e3:.1f} kB = {memory:,.0f} MB",
    )
    return Need("hub", devices, 1, cores, memory, 0.0, costs.hub_device, steps)


def most_of(need: Need, whole: Plan, machine_cores: float, limits: Autoscaling, costs: Costs) -> int:
    """How many devices like those of `need` one machine carries in all, with the rest of `whole` on it as well."""
    others = whole.cores - need.cores - need.devices * costs.hub_device
    spare = machine_cores * limits.target_utilization - others - need.shards * costs.shard_idle
    return max(0, math.floor(spare / (need.per_device + costs.hub_device)))
