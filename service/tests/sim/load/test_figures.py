"""Counts and judgements of load tests."""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from embereye.process.lifecycle import UserError
from embereye.sim.load.clients import Pace, run_client
from embereye.sim.load.figures import ClientFigures, Latencies, Thresholds, judge, rounded, total
from embereye.sim.load.run import (
    LoadTest,
    SystemWatch,
    build_report,
    describe_progress,
    is_local,
    run_load_test,
    sentences,
)
from embereye_cli.simulate import cameras, sensors
from embereye_cli.simulate.load_options import check_load_options, is_load_test, packets_of


def test_percentiles_are_at_most_5_percent_above_the_truth_and_never_below() -> None:
    dice, latencies = random.Random(1), Latencies()
    values = sorted(dice.lognormvariate(-7, 2) for _ in range(10_000))
    for value in values:
        latencies.add(value)
    for share in (0.5, 0.95, 0.99, 1.0):
        true = values[int(share * 10_000) - 1]
        assert true <= latencies.percentile(share) * 1.000001
        assert latencies.percentile(share) <= true * 1.05 + 1e-6
    assert latencies.most == values[-1]
    assert latencies.mean == pytest.approx(sum(values) / len(values))


def test_the_histogram_has_1_2_5_bounds_and_counts_everything_once() -> None:
    latencies = Latencies()
    for milliseconds in (0.045, 0.15, 0.15, 3.0, 700.0):
        latencies.add(milliseconds / 1e3)
    histogram = latencies.histogram()
    assert [(entry["upToMs"], entry["count"]) for entry in histogram] == [(0.05, 1), (0.2, 2), (5.0, 1), (1000.0, 1)]


def test_clients_add_up() -> None:
    first, second = ClientFigures("a"), ClientFigures("b")
    for figure, size in ((first, 10), (first, 20), (second, 30)):
        figure.count_sent(size)
        figure.latencies.add(0.001)
    second.errors["refused"] += 2
    whole = total([first, second])
    assert (whole.packets, whole.sent_bytes, whole.errors.total(), whole.latencies.count) == (3, 60, 2, 3)


def test_a_load_that_was_not_offered_or_not_measured_does_not_pass() -> None:
    figures = ClientFigures("all")
    checks = judge(figures, achieved=90.0, wanted=100.0, thresholds=Thresholds(max_p95=0.005))
    assert {check.name: check.ok for check in checks} == {"errors": True, "packets/s": False, "latency p95": False}
    assert checks[-1].value == "not measured"
    figures.latencies.add(0.004)
    checks = judge(figures, achieved=96.0, wanted=100.0, thresholds=Thresholds(max_p95=0.005, max_p99=0.003))
    assert {check.name: check.ok for check in checks} == {
        "errors": True, "packets/s": True, "latency p95": True, "latency p99": False,
    }  # fmt: skip


def sent(packets: int, until: float, began: float = 100.0) -> ClientFigures:
    return ClientFigures("a", packets=packets, sent_bytes=packets * 10, began=began, last_sent=until)


@pytest.mark.parametrize(
    ("figure", "packets", "ended", "rate", "due"),
    [
        (sent(60, 105.9), 60, 105.9, 10.0, 60),  # as planned
        (sent(1, 100.0), 1, 100.0, 10.0, 1),
        (sent(60, 107.5), 60, 107.5, 8.0, 60),  # a server too slow for the rate
        (sent(20, 102.0), 60, 126.0, 20 / 6, 60),  # a server that failed after 2 s of 6 s
        (sent(20, 101.95), 60, 102.0, 10.0, 20),  # ended by Ctrl-C
        (sent(30, 105.9), 0, 106.0, 5.0, 60),  # half of the packets due by its end
        (ClientFigures("a", began=100.0), 60, 126.0, 0.0, 60),
        (ClientFigures("a"), 60, 100.0, 0.0, 0),  # ended before its start
    ],
)
def test_a_rate_covers_all_the_time_in_which_packets_were_due(
    figure: ClientFigures, packets: int, ended: float, rate: float, due: int
) -> None:
    assert figure.due(10.0, packets, ended) == due
    assert figure.rate(10.0, due) == pytest.approx(rate)


def test_a_load_that_was_mostly_not_sent_is_reported_and_does_not_pass() -> None:
    figures = [sent(20, 102.0), sent(20, 102.0)]
    test = LoadTest(
        "127.0.0.1:1", rate=10, packets=60, thresholds=Thresholds(), settings={"latency": "due until taken"}
    )
    watch = SystemWatch(test.target)
    report = build_report(test, figures, datetime.now(UTC), (100.0, 126.0), watch)
    assert not report["passed"]
    assert (report["seconds"], report["total"]["due"], report["total"]["packets"]) == (26.0, 120, 40)
    assert report["total"]["packetsPerSecond"] == pytest.approx(40 / 6, abs=0.001)
    lines = sentences(report)
    assert lines[0].startswith("2 clients, 26.0 s: 40 packets of 120 that were due, 6.7/s, ")
    assert "SHORT packets/s 6.7 (≥ 19.0)" in lines
    assert "40 packets of 120 that were due, 6.7/s, " in describe_progress(test, figures, (100.0, 126.0), watch)


async def test_skipped_packets_count_as_sent_when_the_server_accepted_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("embereye.sim.load.run.GRACE_SECONDS", 0.0)
    test = LoadTest("127.0.0.1:1", rate=100, packets=3, thresholds=Thresholds())
    figures = [ClientFigures("a", packets=2, skipped=1), ClientFigures("b", packets=2)]
    report = await run_load_test(test, figures, lambda: asyncio.sleep(60), asyncio.Event(), lambda _: None)
    assert [client["errorsByReason"] for client in report["perClient"]] == [{}, {"did not send everything in time": 1}]


def test_a_report_has_a_histogram_of_each_client_and_of_all() -> None:
    figures = [ClientFigures("a"), ClientFigures("b")]
    for figure, milliseconds in zip(figures, (1.8, 45), strict=True):
        figure.count_sent(10)
        figure.latencies.add(milliseconds / 1e3)
    test = LoadTest("127.0.0.1:1", rate=10, packets=1, thresholds=Thresholds(), settings={"latency": "due until taken"})
    report = build_report(test, figures, datetime.now(UTC), (99.0, 100.0), SystemWatch(test.target))
    bounds = [[entry["upToMs"] for entry in part["histogram"]] for part in (*report["perClient"], report["total"])]
    assert bounds == [[2], [50], [2, 50]]


def test_a_latency_without_measurements_is_reported_as_none() -> None:
    nobody = "127.0.0.1:1"
    test = LoadTest(nobody, rate=10, packets=0, thresholds=Thresholds(), settings={"latency": "due until taken"})
    figures = [ClientFigures("a")]
    assert "no latency" in describe_progress(test, figures, (98.0, 100.0), SystemWatch(nobody))
    report = build_report(test, figures, datetime.now(UTC), (98.0, 100.0), SystemWatch(nobody))
    assert "latency (due until taken): none was measured" in sentences(report)


def test_numbers_are_written_without_exponents() -> None:
    assert [rounded(value) for value in (0.0, 0.01234, 12.34, 1_540.2, 1_234_567.0)] == [
        "0", "0.0123", "12.3", "1,540", "1,230,000",
    ]  # fmt: skip


async def test_a_late_packet_does_not_delay_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("embereye.sim.load.clients.time.monotonic", lambda: now)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("embereye.sim.load.clients.asyncio.sleep", sleep)
    pace = Pace(rate=10.0, packets=5, began=100.0)
    assert await pace.next() == 100.0
    now += 0.25  # the server took so long
    assert [await pace.next(), await pace.next()] == pytest.approx([100.1, 100.2])
    assert now == 100.25
    assert await pace.next() == pytest.approx(100.3)
    assert now == pytest.approx(100.3)
    assert not pace.is_over
    now += 10
    assert pace.skip_to(now) == 1
    assert pace.is_over


@pytest.mark.parametrize(("lasted", "longest"), [(1.0, 0.1), (0.5, 5.0)])
async def test_a_client_redials_at_once_after_a_stable_connection_or_backs_off(
    monkeypatch: pytest.MonkeyPatch, lasted: float, longest: float
) -> None:
    waits: list[float] = []
    now = 100.0

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("embereye.sim.load.clients.asyncio.sleep", sleep)
    monkeypatch.setattr("embereye.sim.load.clients.time.monotonic", lambda: now)
    figure, pace = ClientFigures("a"), Pace(rate=10.0, packets=40, began=now)

    async def speak() -> None:
        nonlocal now
        now += lasted
        pace.number += 1
        figure.count_sent(10)
        raise ConnectionResetError("sent on")

    await run_client(speak, figure, pace, seed=1)
    assert 0.8 * longest < max(waits) <= longest
    assert figure.errors["sent on"] == 40


def test_loopback_is_this_machine_and_others_are_not() -> None:
    assert is_local("127.0.0.1")
    assert is_local("::1")
    assert not is_local("192.0.2.1")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--packets", "5"], "--packets has no effect without --clients or --report"),
        (["--include-frames"], "--include-frames has no effect without"),
        (["--clients", "0"], "--clients 0 is not between 1 and 10000"),
        (["--clients", "2", "--packets", "1", "--for", "1s"], "both set the end"),
        (["--clients", "2", "--rate", "0"], "--rate 0 is not more than 0"),
        (["--clients", "2", "--fire", "at=1,device=sensor-0001"], "have no effect in a load test"),
        (["--clients", "2", "--packets", "1", "--duration", "1"], "both set the end"),
        (["--for", "2s", "--duration", "1"], "--duration and --for mean the same: give only one"),
        (["--clients", "2", "--frame-rate", "2"], "--frame-rate has no effect in a load test: --include-frames"),
        (["--min-rate", "50"], "--min-rate has no effect without --clients or --report"),
        (["--max-errors", "5"], "--max-errors has no effect without --clients or --report"),
        (["--max-errors", "0"], "--max-errors has no effect without --clients or --report"),
        (["--clients", "2", "--min-rate", "nan"], "--min-rate nan is not between 0 and 100"),
        (["--clients", "2", "--min-rate", "950"], "--min-rate 950 is not between 0 and 100"),
        (["--clients", "2", "--min-rate", "-1"], "--min-rate -1 is not between 0 and 100"),
        (["--clients", "2", "--report", "/there/is/none/report.json"], "there is no folder /there/is/none"),
        (["--clients", "2", "--report", "/"], "--report / cannot be written: Is a directory"),
    ],
)
def test_senseless_options_of_a_load_test_are_named(arguments: list[str], sentence: str) -> None:
    parser = argparse.ArgumentParser()
    sensors.add_arguments(parser)
    with pytest.raises(UserError, match=sentence):
        sensors.run(parser.parse_args(["--target", "127.0.0.1:9001", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--push", "127.0.0.1:1", "--clients", "2", "--codec", "h264"], "--codec h264: only --rtsp serves it"),
        (["--push", "127.0.0.1:1", "--clients", "2", "--loss", "2"], "--loss 2: only --rtsp loses packets"),
        (["--push", "127.0.0.1:1", "--onvif", "127.0.0.1:2"], "--onvif needs --rtsp HOST:PORT"),
        (["--push", "127.0.0.1:0", "--duration", "0.1"], "--push 127.0.0.1:0 is not HOST:PORT"),
        (
            ["--rtsp", "127.0.0.1:0", "--codec", "h264", "--onvif", "127.0.0.1:0", "--duration", "0.1"],
            "--rtsp 127.0.0.1:0 is not HOST:PORT",
        ),
        (["--push", "127.0.0.1:1", "--count", "0", "--report", "r.json"], "a load test needs at least one camera"),
    ],
)
def test_senseless_options_of_cameras_are_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    cameras.add_arguments(parser)
    assert cameras.run(parser.parse_args(arguments)) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("option", "text"), [("--for", "3s"), ("--duration", "3")])
def test_the_length_of_a_load_test_can_be_given_in_two_ways(option: str, text: str) -> None:
    parser = argparse.ArgumentParser()
    sensors.add_arguments(parser)
    parsed = parser.parse_args(["--target", "h:1", "--clients", "2", option, text])
    check_load_options(parsed, 10.0)
    assert packets_of(parsed, 10.0) == 30


def test_checking_that_a_report_is_writable_leaves_no_file(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    sensors.add_arguments(parser)
    for name, content in (("new.json", None), ("old.json", "kept")):
        path = tmp_path / name
        if content:
            path.write_text(content)
        check_load_options(parser.parse_args(["--target", "h:1", "--report", str(path)]), 10.0)
        assert (path.read_text() if path.exists() else None) == content


def test_a_report_is_written_in_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    script = (
        "import sys, pathlib; from embereye.sim.load.run import write_report;"
        "write_report(pathlib.Path(sys.argv[1]), {'limit': chr(0x2265)})"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=True)
    assert json.loads(path.read_text(encoding="utf-8")) == {"limit": "\u2265"}


def test_a_report_option_makes_it_a_load_test(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    sensors.add_arguments(parser)
    parsed = parser.parse_args(["--target", "h:1", "--devices", "a=hall", "--report", str(tmp_path / "r.json")])
    assert is_load_test(parsed)
