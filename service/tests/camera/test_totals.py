"""Sums over the cameras of a shard."""

from types import SimpleNamespace
from typing import Any

from embereye.camera.device.analyser import Analyser
from embereye.camera.metrics import frame_metrics
from embereye.camera.totals import Totals
from embereye.shard.ledger import Ledger
from embereye.units import SECOND
from embereye.v1.shard_pb2 import CameraSettings, Model
from embereye.v1.types_pb2 import Device


def camera(model_cost: tuple[int, float] | None = None) -> Any:
    """Build the parts that totals read of a camera that was analysed twice."""
    ledger, cost = Ledger(offered=3, analysed=2), SimpleNamespace(cpu_seconds=0.1, failures=1)
    arrivals = SimpleNamespace(mailbox=SimpleNamespace(ledger=ledger), backpressure=SimpleNamespace(unread=1.0))
    return SimpleNamespace(arrivals=arrivals, analyser=SimpleNamespace(cost=cost, model_cost=model_cost))


def test_no_counter_falls_when_a_fleet_gets_another_model_or_none() -> None:
    host: Any = SimpleNamespace(threads=SimpleNamespace(withdraw=lambda _: None))
    totals, inspected = Totals(), camera()
    analyser = inspected.analyser = Analyser(host)
    results = []
    for path in ("one.onnx", "two.onnx", "", "one.onnx"):
        analyser.configure(Device(id="gate"), CameraSettings(model=Model(path=path) if path else None), SECOND)
        if analyser.model:
            analyser.model.runs += 3
            analyser.model.cpu_seconds += 0.5
        results.append(counted(totals.plus([inspected])))
    assert [result["embereye_camera_model_runs_total"] for result in results] == [3, 6, 6, 9]
    assert [result["embereye_camera_model_cpu_seconds_total"] for result in results] == [0.5, 1.0, 1.0, 1.5]


def counted(totals: Totals) -> dict[str, float]:
    return {sample.name: sample.value for metric in frame_metrics(totals) for sample in metric.samples}


def test_no_counter_falls_when_cameras_move_to_other_shards() -> None:
    totals, cameras = Totals(), [camera((4, 0.5)) for _ in range(2)]
    before = counted(totals.plus(cameras))
    totals.retire(cameras.pop())
    after = counted(totals.plus(cameras))
    assert before["embereye_camera_model_runs_total"] == 8
    assert {name for name, value in before.items() if after.get(name, 0) < value} == set()


def test_a_fleet_without_a_model_has_no_model_metrics() -> None:
    assert not any("model" in name for name in counted(Totals().plus([camera()])))
