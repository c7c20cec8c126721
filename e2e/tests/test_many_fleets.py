"""Many fleets: their manifests, the quantiles of passes, the tables, and a small simulated run."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from harness.cluster.cluster import ROOT
from harness.cluster.many_fleets import (
    PODS,
    SIMULATED,
    Row,
    compare_rows,
    covered_fleets,
    many_fleets,
    measure,
    quantile,
    table,
    value,
)
from harness.cluster.many_fleets_sites import NAMESPACE, running_simulated

from embereye_operator.api.fleets import parse_fleet

REAL = Row(
    PODS, 200, 300.0, growing_p99=0.8, rest_p50=0.01, rest_p99=0.05, passes=30.0,
    asked={"patch leases": 1.5, "get nodes": 0.5}, served=90.0, operator_mb=110.0, operator_cores=0.1,
    hub_mb=90.0, hub_cores=0.2, shard_mb=12.0,
)  # fmt: skip
SIMULATION = Row(
    SIMULATED, 200, 30.0, growing_p99=0.4, rest_p50=0.005, rest_p99=None, passes=33.0,
    asked={"patch leases": 1.0}, served=None, operator_mb=99.0, operator_cores=0.05,
)  # fmt: skip


def page(**counts: int) -> str:
    """Metrics with a histogram of passes: cumulative counts up to 10 ms, 20 ms and 1 s, and of all."""
    bounds = {"ms10": "0.01", "ms20": "0.02", "s1": "1.0", "all": "+Inf"}
    lines = [
        f'embereye_operator_pass_duration_seconds_bucket{{le="{bounds[name]}"}} {count}.0'
        for name, count in counts.items()
    ]
    return "\n".join(["# HELP process_resident_memory_bytes 7", *lines, "process_resident_memory_bytes 5e+07"])


def test_the_fleets_are_valid_small_and_share_no_device() -> None:
    fleets = [parse_fleet(manifest) for manifest in many_fleets(5, 50, "site")]
    assert [fleet.name for fleet in fleets[:2]] == ["f0005", "f0006"]
    assert len(fleets) == 45
    devices = [device.id for fleet in fleets for device in fleet.devices]
    assert len(set(devices)) == len(devices) == 4 * 45
    assert {fleet.namespace for fleet in fleets} == {"site"}
    assert {fleet.spec.shards for fleet in fleets} == {1}
    assert {fleet.spec.image for fleet in fleets} == {"e2e-stub-shard:latest"}
    assert fleets[0].spec.template.resources.requests["cpu"] == "1m"


def test_a_quantile_counts_the_passes_between_two_pages() -> None:
    before, after = page(ms10=100, ms20=100, s1=100, all=100), page(ms10=150, ms20=190, s1=200, all=200)
    assert quantile(before, after, 0.5) == pytest.approx(0.01)
    assert quantile(before, after, 0.7) == pytest.approx(0.015)
    assert quantile(before, after, 0.95) == pytest.approx(0.51)


def test_a_pass_beyond_the_last_bound_counts_as_the_bound_and_none_has_no_quantile() -> None:
    assert quantile("", page(ms10=0, ms20=0, s1=1, all=100), 0.99) == 1.0
    assert quantile(page(ms10=3, all=3), page(ms10=3, all=3), 0.99) is None
    assert quantile("", "", 0.99) is None


def test_values_and_covered_fleets_are_read_from_metrics() -> None:
    assert value(page(), "process_resident_memory_bytes") == 5e7
    assert value(page(), "process_cpu_seconds_total") == 0.0
    text = "\n".join(
        f'embereye_fleet_condition{{namespace="site",kind="sensors",fleet="f{number}",condition="{condition}"}} {state}'
        for number, (condition, state) in enumerate([("Covered", 1.0), ("Covered", 0.0), ("Ready", 1.0)])
    )
    assert covered_fleets(text) == 1


def test_the_table_has_a_row_for_each_number_of_fleets() -> None:
    lines = table([REAL, SIMULATION]).splitlines()
    assert lines[0].startswith("| shards | fleets | all covered after | p99 of a pass while growing |")
    assert lines[2:] == [
        "| pods | 200 | 300 s | 800 ms | 10.0 ms | 50.0 ms | 30.0 | 2.00 | 90.0 | 110 MB | 0.100 "
        "| 90 MB | 0.200 | 12 MB |",
        "| simulated | 200 | 30 s | 400 ms | 5.0 ms | - | 33.0 | 1.00 | - | 99 MB | 0.050 | - | - | - |",
    ]


def test_a_simulation_is_compared_with_as_many_fleets_of_pods() -> None:
    lines = compare_rows([REAL, SIMULATION, replace(SIMULATION, fleets=2000)]).splitlines()
    assert lines[0].startswith("| simulated ÷ pods | all covered after |")
    assert lines[2:] == ["| 200 | 0.10 | 0.50 | 0.50 | - | 1.10 | 0.50 | 0.90 | 0.50 |"]
    assert compare_rows([SIMULATION]) == ""


@pytest.mark.parametrize(("steps", "complaint"), [("50,5", "each number must be larger"), ("few", "not a list of")])
def test_the_command_refuses_steps_that_do_not_grow(steps: str, complaint: str) -> None:
    command = [sys.executable, str(ROOT / "e2e/many-fleets"), "--steps", steps]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert complaint in refused.stderr


@pytest.mark.slow
@pytest.mark.apiserver
async def test_simulated_fleets_are_measured_on_a_real_api_server(tmp_path: Path) -> None:
    lines: list[str] = []
    async with running_simulated() as simulated:
        row = await measure(simulated, NAMESPACE, 0, 12, 1.0, lines.append)
    assert lines[-1].rpartition(" after ")[0].endswith("of 12 fleets are covered")
    assert row.growing_p99
    assert row.rest_p99
    assert min(row.passes, row.operator_mb, row.operator_cores, *row.asked.values()) > 0
    assert any(kind.endswith(" leases") for kind in row.asked)
    assert json.loads(json.dumps(vars(row)))["fleets"] == 12
