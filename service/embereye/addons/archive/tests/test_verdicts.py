"""The status of a FleetBackup, from its Jobs and their pods."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embereye.addons.archive.resource.decide import LATE, Declared, build_cron_job, judge
from embereye.addons.archive.resource.model import (
    ClaimFolder,
    Destination,
    FleetBackupSpec,
    FleetBackupStatus,
    LastBackup,
)

CREATED = datetime(2026, 11, 30, 12, tzinfo=UTC)
DUE = datetime(2026, 12, 1, 3, tzinfo=UTC)
SPEC = FleetBackupSpec("0 3 * * *", Destination(claim=ClaimFolder("share")))
BACKUP = Declared("embereye", "nightly", "u-1", 1, CREATED, SPEC, FleetBackupStatus())
RESULT = {"name": "2026-12-01T03-00-01Z", "bytes": 12_345_678, "clips": 5, "seconds": 2.5}


def job(name: str, begun: datetime, ended: str = "", message: str = "") -> dict[str, Any]:
    """A Job; `ended`: "Complete" or "Failed"."""
    conditions = [{"type": ended, "status": "True", "message": message}] if ended else []
    start = f"{begun:%Y-%m-%dT%H:%M:%SZ}"
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": start},
        "status": {"startTime": start, "conditions": conditions},
    }


def pod(of: str, message: str | None = None, reason: str = "", created: datetime = DUE) -> dict[str, Any]:
    """A pod of a Job with its termination message, or that waits for `reason`."""
    state: dict[str, Any] = {"terminated": {"message": message}} if message is not None else {}
    state = {"waiting": {"reason": "CreateContainerError", "message": reason}} if reason else state
    return {
        "metadata": {
            "name": f"{of}-x", "namespace": "embereye", "ownerReferences": [{"uid": of}],
            "creationTimestamp": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        },
        "spec": {},
        "status": {"containerStatuses": [{"state": state}]},
    }  # fmt: skip


def answer(status: FleetBackupStatus) -> tuple[str, str]:
    (ready,) = status.conditions
    return ready.status, ready.reason


def test_before_its_first_time_a_backup_waits() -> None:
    verdict = judge(BACKUP, [], [], DUE - timedelta(minutes=1))
    assert answer(verdict.status) == ("Unknown", "Waiting")
    assert (verdict.status.next_backup, verdict.overdue) == ("2026-12-01T03:00:00Z", timedelta())


def test_a_complete_job_is_the_last_backup_with_the_result_of_its_pod() -> None:
    jobs, pods = [job("a", DUE, "Complete")], [pod("a", json.dumps(RESULT)), pod("b", "{}")]
    verdict = judge(BACKUP, jobs, pods, DUE + timedelta(minutes=5))
    last = LastBackup("2026-12-01T03:00:00Z", RESULT["name"], 2.5, 12_345_678, "12.3 MB", 5)  # type: ignore[arg-type]
    assert (answer(verdict.status), verdict.status.last_backup) == (("True", "BackedUp"), last)
    assert verdict.status.next_backup == "2026-12-02T03:00:00Z"
    known = replace(BACKUP, status=verdict.status)
    for jobs_now, pods_now in ((jobs, pods), (jobs, []), ([], [])):  # Kubernetes deletes both in time
        assert judge(known, jobs_now, pods_now, DUE + timedelta(minutes=6)).status == verdict.status


def test_a_failed_job_says_why_until_a_later_one_succeeds() -> None:
    words = "INFO something\nembereye backup make: error: the bucket x cannot be used: the key lacks the right"
    failed = job("a", DUE, "Failed", "Job has reached the specified backoff limit")
    verdict = judge(BACKUP, [failed], [pod("a", words)], DUE + timedelta(minutes=5))
    assert answer(verdict.status) == ("False", "Failed")
    assert verdict.status.conditions[0].message.endswith("Job a: embereye backup make: error: the bucket x cannot be "
                                                         "used: the key lacks the right")  # fmt: skip
    verdict = judge(BACKUP, [failed], [], DUE + timedelta(minutes=5))
    assert verdict.status.conditions[0].message == "Job a: Job has reached the specified backoff limit"
    later = job("b", DUE + timedelta(hours=1), "Complete")
    assert answer(judge(BACKUP, [failed, later], [], DUE + timedelta(hours=2)).status) == ("True", "BackedUp")


@pytest.mark.parametrize(
    ("jobs", "pods", "words"),
    [
        ([], [], "CronJob nightly-backup has started no Job"),
        ([job("a", DUE)], [], "Job a has no pod"),
        ([job("a", DUE)], [pod("a", reason="no secret")], "its pod embereye/a-x cannot be started: no secret"),
        ([job("a", DUE)], [pod("a")], "its pod embereye/a-x still works"),
        ([job("a", DUE)], [pod("a", "no route to the hub")], "no route to the hub"),
    ],
)
def test_a_backup_that_was_not_made_is_overdue_and_says_why(jobs: Any, pods: Any, words: str) -> None:
    early, late = (judge(BACKUP, jobs, pods, DUE + LATE + timedelta(seconds=step)) for step in (-1, 1))
    assert answer(early.status) == ("Unknown", "Waiting")
    assert (answer(late.status), late.overdue) == (("False", "Overdue"), LATE + timedelta(seconds=1))
    assert words in late.status.conditions[0].message
    assert "due since 2026-12-01T03:00:00Z" in late.status.conditions[0].message


def test_a_suspended_or_wrong_backup_says_so_and_is_not_overdue() -> None:
    late = DUE + timedelta(days=9)
    verdict = judge(replace(BACKUP, spec=replace(SPEC, suspend=True)), [], [], late)
    assert (answer(verdict.status), verdict.overdue) == (("Unknown", "Suspended"), timedelta())
    verdict = judge(replace(BACKUP, spec=replace(SPEC, time_zone="Mars/Olympus")), [], [], late)
    assert answer(verdict.status) == ("False", "Misconfigured")
    verdict = judge(BACKUP, [], [], late, "PodTemplate x does not exist")
    assert (answer(verdict.status), verdict.overdue > LATE) == (("False", "Misconfigured"), True)


def test_the_time_of_a_change_stays_while_the_answer_does() -> None:
    first = judge(BACKUP, [], [], DUE + 2 * LATE).status
    again = judge(replace(BACKUP, status=first), [job("a", DUE)], [], DUE + 3 * LATE).status
    assert again == first, "nothing is written while a backup is overdue"


def test_a_claim_is_mounted_and_declared_to_the_command() -> None:
    container = {"name": "backup", "image": "i", "args": ["backup", "make"], "volumeMounts": [{"name": "tmp"}]}
    template = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}
    made = build_cron_job(BACKUP, template)
    assert made["spec"]["concurrencyPolicy"] == "Forbid"
    pod_made = made["spec"]["jobTemplate"]["spec"]["template"]
    (made_container,) = pod_made["spec"]["containers"]
    assert made_container["args"] == ["backup", "make", "--archive=/etc/embereye/backup/archive.yaml", "--clips"]
    assert [mount["name"] for mount in made_container["volumeMounts"]] == ["tmp", "declared", "place"]
    assert pod_made["spec"]["volumes"][-1]["persistentVolumeClaim"] == {"claimName": "share"}
    declared = json.loads(pod_made["metadata"]["annotations"]["embereye.dev/backup-destination"])
    assert declared == {"folder": "/backups", "prefix": "", "keepBackups": 14}
    assert pod_made["metadata"]["labels"] == {"a": "b", "embereye.dev/backup": "nightly"}
