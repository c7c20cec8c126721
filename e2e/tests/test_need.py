"""Tests without their programs are skipped with a remedy and counted, and nothing is built for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.need import API_SERVER, FFMPEG, HELM, NATS, NEEDS, POSTGRES, ROOT, Need, of_fixtures, program, summary
from harness.servers.nats import Nats

ABSENT = Need("a perpetual motion machine", "wait for one", lambda: False)
PRESENT = Need("air", "open a window", lambda: True)


def test_a_test_that_needs_what_is_missing_is_skipped_with_the_remedy() -> None:
    with pytest.raises(pytest.skip.Exception, match="needs a perpetual motion machine: wait for one"):
        ABSENT.require()
    PRESENT.require()


def test_every_need_has_a_name_and_a_reason_of_its_own() -> None:
    assert len({need.name for need in NEEDS}) == len({need.reason for need in NEEDS}) == len(NEEDS)


def test_a_test_needs_what_its_fixtures_need(request: pytest.FixtureRequest, own_nats: Nats) -> None:
    """`-m needs` left out 254 tests on PostgreSQL and NATS, which therefore ran nowhere but on developers' machines."""
    (mark,) = request.node.iter_markers("needs")
    assert mark.args == (NATS,)
    assert of_fixtures(["stored", "tmp_path"], {"stored": "sqlite", "number": 5}) == []
    assert of_fixtures(["postgres", "stored"], {"stored": "postgres", "bus": "jetstream"}) == [POSTGRES, NATS]


def test_skipped_tests_are_counted_by_what_they_lacked_most_first() -> None:
    reasons = [FFMPEG.reason, ABSENT.reason, *[HELM.reason] * 3, "an earlier step failed"]
    assert (
        summary(reasons, [*NEEDS, ABSENT])
        == "skipped; missing: Helm 3 (make test), FFmpeg 1 (make peers), a perpetual motion machine 1"
    )
    assert summary(["an earlier step failed"]) == ""


def test_programs_are_looked_for_in_the_folder_that_is_named_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "helm").touch(0o755)
    (tmp_path / "kubectl").touch(0o644)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    program.cache_clear()
    try:
        assert program("helm") == tmp_path / "helm"
        assert program("kubectl") != tmp_path / "kubectl", "nobody may run that"
    finally:
        program.cache_clear()


def test_a_run_with_nothing_built_skips_at_once_and_names_what_is_missing(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "KUBEBUILDER_ASSETS"}
    environment["EMBEREYE_CACHE"] = str(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["charts/tests/test_chart.py", "operator/tests/runtime/test_lease.py"]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    *_, wanting, closing = run.stdout.strip().splitlines()
    assert run.returncode == 0, run.stdout
    assert wanting.startswith("skipped; missing: ")
    for need in (HELM, API_SERVER):
        assert need.reason in run.stdout
        assert f"{need.name} " in wanting
        assert "(make test)" in wanting
    assert " skipped" in closing
    assert "failed" not in closing
    assert not list(tmp_path.glob("kubernetes/*/bin/*"))
