"""Declarations of metrics: one for each name, which says who exports it and in which unit."""

import pytest

from embereye.process.telemetry.metric import CAMERA, DECLARED, SENSOR, counter, gauge, histogram


@pytest.fixture(autouse=True)
def _only_for_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embereye.process.telemetry.metric.DECLARED", dict(DECLARED))


def test_a_name_is_declared_once() -> None:
    gauge("embereye_shard_test_warmth", "Warmth.")
    with pytest.raises(ValueError, match="embereye_shard_test_warmth is declared twice"):
        gauge("embereye_shard_test_warmth", "Warmth, too.")


def test_a_name_says_who_exports_it_or_the_declaration_does() -> None:
    assert gauge("embereye_sensor_test", "Test.").exporters == (SENSOR,)
    assert gauge("embereye_shard_test", "Test.").exporters == (SENSOR, CAMERA)
    assert gauge("other_test", "Test.", exporters=(CAMERA,)).exporters == (CAMERA,)
    with pytest.raises(ValueError, match="other_test_2 does not say who exports it"):
        gauge("other_test_2", "Test.")


def test_a_name_says_the_unit() -> None:
    assert gauge("embereye_shard_test_bytes", "Test.").unit == "bytes"
    assert counter("embereye_shard_test_cpu_seconds_total", "Test.").unit == "CPU seconds"
    assert gauge("embereye_shard_test_timestamp_seconds", "Test.").unit == "seconds since 1970"
    assert gauge("embereye_shard_test_devices", "Test.").unit == ""


def test_a_histograms_series_are_three() -> None:
    metric = histogram("embereye_shard_test_seconds", "Test.")
    assert metric.series == tuple(f"embereye_shard_test_seconds{end}" for end in ("_bucket", "_sum", "_count"))


def test_counts_are_series_of_the_only_label() -> None:
    family = counter("embereye_shard_test_total", "Test.", ["reason"]).counts({"late": 2, "damaged": 1})
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"reason": "damaged"}, 1),
        ({"reason": "late"}, 2),
    ]
