"""A candidate judges the same data as the settings in force, and only the right differences are found."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from harness.settings import sensor_settings

from embereye.detect.sensing.bands import BandTable
from embereye.detect.sensing.mq135 import counts_at
from embereye.levels import Kind, Level
from embereye.sensor import candidate as module
from embereye.sensor.candidate import SensorCandidate
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.tick import TickBatcher
from embereye.shard.candidate.comparison import Difference
from embereye.shard.evidence.episodes import Episodes, Sign
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Candidate, SensorSettings
from embereye.v1.types_pb2 import Device

START = 1_700_000_000 * SECOND
CALM = (300.0, 1300.0, 400.0, 0.0)  # smoke, flame, gas, digital flame


def changed(**gas: float) -> SensorSettings:
    settings = sensor_settings()
    for name, value in gas.items():
        setattr(settings.gas, name, value)
    return settings


@dataclass
class Watch:
    """Some sensors, judged by the settings in force and by a candidate."""

    settings: SensorSettings
    names: Sequence[str] = ("s",)
    in_force: SensorSettings = field(default_factory=sensor_settings)
    differing: list[Difference] = field(default_factory=list)
    reports: list[tuple[str, Kind, Level]] = field(default_factory=list)

    def __post_init__(self) -> None:
        bands = BandTable()
        self.devices = {name: SensorDevice(Device(id=name, zone="hall"), self.in_force, bands) for name in self.names}
        self.batcher = TickBatcher(bands, self._observe)
        self.batcher.configure(self.in_force)
        self.episodes = Episodes("default/sensors/f")
        self.candidate = SensorCandidate(Candidate(name="c", id="1", sensor=self.settings))
        self.candidate.watch(self.devices)
        self.batcher.candidate = self.candidate

    def _observe(self, signs: list[Sign], now_ns: int) -> None:
        for sign in signs:
            report = self.episodes.observe(sign, now_ns)
            if report:
                self.reports.append((sign.device, sign.kind, Level(report.level)))
            self.candidate.note_in_force(sign, now_ns, report.episode if report else "")

    def show(self, second: int, gas: dict[str, float]) -> None:
        """Show one reading of each device, with its gas in ppm."""
        now_ns = START + second * SECOND
        for name, device in self.devices.items():
            board = device.readings.thresholds.board
            adc = counts_at(gas[name], board, 4095.0) if gas.get(name) else CALM[2]
            self.batcher.add_rows(device, np.array([(*CALM[:2], adc, CALM[3])]))
        self.batcher.analyse_collected(now_ns)
        self.candidate.work()
        self.differing += self.candidate.differences(now_ns)

    @property
    def summary(self) -> list[tuple[str, Kind, Level, str]]:
        return [(entry.device, entry.kind, entry.level, entry.which) for entry in self.differing]


async def test_a_lower_threshold_finds_the_gas_between_both_and_nothing_else() -> None:
    watch = Watch(changed(alarm_ppm=4000), names=("calm", "between", "above", "below"))
    for second in range(60):
        watch.show(second, {"between": 4500.0, "above": 6000.0, "below": 3000.0} if 10 <= second < 30 else {})
    assert watch.summary == [("between", Kind.GAS, Level.ALARM, "candidate")]
    assert watch.differing[0].terms[0][0] == "gas"
    assert watch.candidate.counts.unseen == 0


async def test_a_higher_threshold_misses_an_alarm_that_is_in_force() -> None:
    watch = Watch(changed(alarm_ppm=7000))
    for second in range(60):
        watch.show(second, {"s": 6000.0} if 10 <= second < 30 else {})
    assert watch.summary == [("s", Kind.GAS, Level.ALARM, "inForce")]
    assert watch.differing[0].episode  # that of the report, whose recording shows it


async def test_equal_settings_never_differ() -> None:
    watch = Watch(sensor_settings(), names=("a", "b"))
    for second in range(200):
        watch.show(second, {"a": 2500.0 + 40 * second, "b": 5000.0 if second % 3 else 100.0})
    assert watch.summary == []


async def test_a_candidate_changes_nothing_of_what_is_in_force() -> None:
    alone, watched = Watch(sensor_settings()), Watch(changed(pre_alarm_ppm=100, alarm_ppm=150))
    for second in range(60):
        for watch in (alone, watched):
            watch.show(second, {"s": 6000.0} if 20 <= second < 30 else {})
    assert watched.reports == alone.reports


async def test_a_line_that_only_the_candidate_needs_is_not_quiet() -> None:
    watch = Watch(changed(pre_alarm_ppm=100, alarm_ppm=100))
    device = watch.devices["s"]
    adc = round(counts_at(1000.0, device.readings.thresholds.board, 4095.0))
    line = b"ADC1=300,ADC2=1300,ADC3=%d,MPY30=0!" % adc
    assert not device.readings.quiet_line(line, 0)
    watch.candidate.close(watch.devices.values())
    assert device.readings.quiet_line(line, 0)


async def test_a_full_queue_leaves_the_candidate_out_and_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED", 5)
    watch = Watch(changed(alarm_ppm=4000))
    rows = np.array([(*CALM[:2], counts_at(4500.0, watch.devices["s"].readings.thresholds.board, 4095.0), 0.0)])
    for second in range(8):
        watch.batcher.add_rows(watch.devices["s"], rows)
        watch.batcher.analyse_collected(START + second * SECOND)
    watch.candidate.work()
    assert (watch.candidate.counts.unseen, watch.candidate.counts.seen) == (3, 5)
    assert watch.candidate.differences(START + 60 * SECOND) == []


async def test_a_busy_shard_makes_the_candidate_wait() -> None:
    waiting = [SECOND]
    candidate = SensorCandidate(Candidate(name="c", id="1", sensor=sensor_settings()), lambda: waiting[0])
    device = SensorDevice(Device(id="s", zone="hall"), sensor_settings(), BandTable())
    candidate.watch({"s": device})
    candidate.add_rows([device], [np.array([CALM])], START)
    await asyncio.sleep(0.05)
    assert candidate.counts.seen == 0
    waiting[0] = 0
    while not candidate.counts.seen:
        await asyncio.sleep(0.01)
