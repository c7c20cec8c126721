"""What cameras of a shard add up to."""

from types import SimpleNamespace
from typing import Any

from embereye.camera.metrics import frame_metrics
from embereye.camera.totals import Totals
from embereye.shard.ledger import Ledger


def camera(model: Any = None) -> Any:
    """What totals read of a camera that was looked at twice."""
    ledger, cost = Ledger(offered=3, analysed=2), SimpleNamespace(cpu_seconds=0.1, failures=1)
    arrivals = SimpleNamespace(mailbox=SimpleNamespace(ledger=ledger), backpressure=SimpleNamespace(unread=1.0))
    return SimpleNamespace(arrivals=arrivals, analyser=SimpleNamespace(cost=cost, model=model))


def counted(totals: Totals) -> dict[str, float]:
    return {sample.name: sample.value for metric in frame_metrics(totals) for sample in metric.samples}


def test_no_counter_falls_as_cameras_go_to_other_shards() -> None:
    totals, cameras = Totals(), [camera(SimpleNamespace(runs=4, cpu_seconds=0.5)) for _ in range(2)]
    before = counted(totals.plus(cameras))
    totals.retire(cameras.pop())
    after = counted(totals.plus(cameras))
    assert before["embereye_camera_model_runs_total"] == 8
    assert {name for name, value in before.items() if after.get(name, 0) < value} == set()


def test_without_a_model_of_its_own_a_fleet_has_no_metrics_of_one() -> None:
    assert not any("model" in name for name in counted(Totals().plus([camera()])))
