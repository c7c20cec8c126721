"""Decisions about a FleetBackup: the CronJob that makes its backups, and its status (pure).

Kubernetes schedules the Jobs: it also skips overlaps and makes up for missed runs. Their pods are those of the chart's
PodTemplate, which knows the hub, with the destination added. A pod's result is its termination message.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from embereye.addons.archive.resource.model import FLEET_BACKUP, FleetBackupSpec, FleetBackupStatus, LastBackup
from embereye.addons.archive.resource.schedule import Schedule, parse_schedule
from embereye_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION
from embereye_operator.api.status import Condition
from embereye_operator.decide.cluster.pods import name_of, why_pod_waits
from embereye_operator.decide.ownership.applied import marked

LABEL_BACKUP = "embereye.dev/backup"  # value: the FleetBackup's name
ANNOTATION_PLACE = "embereye.dev/backup-destination"  # of a pod: the archive's file, mounted by the downward API
DECLARED, KEYS, VOLUME = "/etc/embereye/backup", "/etc/embereye/backup-keys", "/backups"  # paths in the pod
LATE = timedelta(hours=1)  # after which a backup that is due counts as overdue
MAKE_UP_SECONDS = 6 * 3600  # for which Kubernetes makes up for a missed run
LIMIT_SECONDS = 12 * 3600  # longest duration of a backup with all of its attempts
ATTEMPTS = 4  # with growing pauses, beyond the first
MAX_MESSAGE = 1000  # characters


@dataclass(frozen=True)
class Declared:
    """A FleetBackup as declared, with its status as last written."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: datetime
    spec: FleetBackupSpec
    status: FleetBackupStatus

    @property
    def job(self) -> str:
        """The name of its CronJob."""
        return f"{self.name}-backup"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its CronJob and Jobs."""
        return {LABEL_BACKUP: self.name, LABEL_MANAGED_BY: MANAGED_BY}


def build_cron_job(backup: Declared, template: Mapping[str, Any]) -> Manifest:
    """Build the CronJob of `backup`; `template` is the chart's PodTemplate for its hub."""
    spec = backup.spec
    owner = {"apiVersion": API_VERSION, "kind": FLEET_BACKUP.resource, "name": backup.name, "uid": backup.uid}
    job = {
        "backoffLimit": ATTEMPTS,
        "activeDeadlineSeconds": LIMIT_SECONDS,
        "template": _pod(backup, template["template"]),
    }
    manifest: Manifest = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {
            "name": backup.job,
            "namespace": backup.namespace,
            "labels": backup.labels,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "schedule": spec.schedule,
            "timeZone": spec.time_zone,
            "suspend": spec.suspend,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": MAKE_UP_SECONDS,
            "successfulJobsHistoryLimit": 2,
            "failedJobsHistoryLimit": 2,
            "jobTemplate": {"metadata": {"labels": backup.labels}, "spec": job},
        },
    }
    return marked(manifest)


def _pod(backup: Declared, template: Mapping[str, Any]) -> Manifest:
    place, volumes = _place(backup.spec)
    metadata, pod = template.get("metadata") or {}, template["spec"]
    container, *others = pod["containers"]
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION_PLACE}']"}}
    volumes = {"declared": (DECLARED, {"downwardAPI": {"items": [{"path": "archive.yaml", **source}]}}), **volumes}
    arguments = [*container["args"], f"--archive={DECLARED}/archive.yaml"]
    arguments += ["--clips"] if backup.spec.include == "HistoryAndClips" else []
    mounts = [{"name": name, "mountPath": path} for name, (path, _) in volumes.items()]
    container = {**container, "args": arguments, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]}
    return {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), LABEL_BACKUP: backup.name},
            "annotations": {**(metadata.get("annotations") or {}), ANNOTATION_PLACE: json.dumps(place)},
        },
        "spec": {
            **pod,
            "containers": [container, *others],
            "volumes": [
                *(pod.get("volumes") or ()), *({"name": name, **volume} for name, (_, volume) in volumes.items())
            ],
        },
    }  # fmt: skip


def _place(spec: FleetBackupSpec) -> tuple[dict[str, Any], dict[str, tuple[str, Manifest]]]:
    """Return the archive's file, and the volumes that it needs: by name the path and the source."""
    if claim := spec.destination.claim:
        volume = {"persistentVolumeClaim": {"claimName": claim.name}}
        return {"folder": VOLUME, "prefix": claim.path, "keepBackups": spec.keep}, {"place": (VOLUME, volume)}
    bucket = spec.destination.s3
    assert bucket is not None
    place = {"bucket": bucket.bucket, "prefix": bucket.prefix, "region": bucket.region, "keepBackups": spec.keep}
    place |= {"endpoint": bucket.endpoint} if bucket.endpoint else {}
    if bucket.credentials_secret is None:
        return place, {}
    secret = {"secret": {"secretName": bucket.credentials_secret.name, "defaultMode": 0o440}}
    return {**place, "credentials": KEYS}, {"keys": (KEYS, secret)}


@dataclass(frozen=True)
class Verdict:
    """The new status of a FleetBackup, and the time for which a backup has been due."""

    status: FleetBackupStatus
    overdue: timedelta = timedelta()


def judge(
    backup: Declared,
    jobs: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
    now: datetime,
    trouble: str = "",
) -> Verdict:
    """Judge `backup` by its Jobs and their pods; `trouble` is why its CronJob could not be written."""
    last = _newest_made(jobs, pods, backup.status.last_backup)
    try:
        schedule = parse_schedule(backup.spec.schedule, backup.spec.time_zone)
    except ValueError as error:
        return Verdict(_status(backup, last, None, now, ("False", "Misconfigured", str(error))))
    coming = schedule.next_after(now)
    if trouble:
        return Verdict(
            _status(backup, last, coming, now, ("False", "Misconfigured", trouble)), _late(backup, last, now)
        )
    if backup.spec.suspend:
        return Verdict(_status(backup, last, None, now, ("Unknown", "Suspended", "spec.suspend is true")))
    overdue = _late(backup, last, now)
    if failed := _newest_failure(jobs, pods, last):
        answer = ("False", "Failed", failed)
    elif overdue > LATE:
        reason = _why_waiting(jobs, pods) or f"CronJob {backup.job} has started no Job: kubectl describe shows why"
        answer = ("False", "Overdue", f"a backup has been due since {_text(now - overdue)}: {reason}")
    elif last is None:
        answer = ("Unknown", "Waiting", "the first backup was not made yet")
    else:
        answer = ("True", "BackedUp", f"{last.name or last.time} is complete")
    return Verdict(_status(backup, last, coming, now, answer), overdue)


def _late(backup: Declared, last: LastBackup | None, now: datetime) -> timedelta:
    """Return the time for which a backup has been due."""
    schedule: Schedule = parse_schedule(backup.spec.schedule, backup.spec.time_zone)
    due = schedule.next_after(datetime.fromisoformat(last.time) if last else backup.created)
    return max(timedelta(), now - due) if due and not backup.spec.suspend else timedelta()


def _newest_made(
    jobs: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]], known: LastBackup | None
) -> LastBackup | None:
    made = [(job["status"]["startTime"], job) for job in jobs if _ended(job, "Complete")]
    if not made:
        return known
    begun, job = max(made, key=lambda entry: datetime.fromisoformat(entry[0]))
    if known and datetime.fromisoformat(known.time) > datetime.fromisoformat(begun):
        return known
    result = next((message for pod in _pods_of(job, pods) if (message := _result(pod))), {})
    if not result and known and known.time == begun:
        return known  # its pod was deleted meanwhile
    size = int(result.get("bytes", 0))
    return LastBackup(
        time=begun, name=str(result.get("name", "")), seconds=float(result.get("seconds", 0.0)), bytes=size,
        size=f"{size / 1e6:,.1f} MB", clips=int(result.get("clips", 0)),
    )  # fmt: skip


def _newest_failure(
    jobs: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]], last: LastBackup | None
) -> str:
    """Return why the newest Job that ended failed; '' if it did not."""
    failed = [(datetime.fromisoformat(job["status"]["startTime"]), job) for job in jobs if _ended(job, "Failed")]
    if not failed:
        return ""
    begun, job = max(failed, key=lambda entry: entry[0])
    if last and datetime.fromisoformat(last.time) >= begun:
        return ""
    condition = _ended(job, "Failed") or {}
    reason = str(condition.get("message") or condition.get("reason") or "the Job failed")
    if words := next((text for pod in _pods_of(job, pods) if (text := _last_words(pod))), ""):
        reason = words
    return f"Job {job['metadata']['name']}: {reason}"[:MAX_MESSAGE]


def _why_waiting(jobs: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> str:
    """Return the state of the newest Job that has not ended; '' if there is none."""
    active = [job for job in jobs if not _ended(job, "Complete") and not _ended(job, "Failed")]
    if not active:
        return ""
    job = max(active, key=lambda entry: str(entry["metadata"].get("creationTimestamp")))
    for pod in _pods_of(job, pods):
        if why := why_pod_waits(pod) or _last_words(pod):
            return why[:MAX_MESSAGE]
        return f"its pod {name_of(pod)} still works"
    return f"Job {job['metadata']['name']} has no pod: kubectl describe shows why"


def _ended(job: Mapping[str, Any], how: str) -> Mapping[str, Any] | None:
    """Return the condition by which `job` ended: "Complete" or "Failed"; None if it did not end so."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == how and entry["status"] == "True"), None)


def _pods_of(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the pods of `job`, the newest first."""
    uid = job["metadata"]["uid"]
    owned = [pod for pod in pods if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or ())]
    return sorted(owned, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)


def _terminated(pod: Mapping[str, Any]) -> str:
    """Return the termination message of a pod's container; '' if it has none."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if ended := (container.get("state") or {}).get("terminated"):
            return str(ended.get("message") or "").strip()
    return ""


def _result(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        result = json.loads(_terminated(pod))
    except ValueError:
        return {}
    return result if isinstance(result, Mapping) else {}


def _last_words(pod: Mapping[str, Any]) -> str:
    """Return the last line that a failed pod printed; '' if it did not fail."""
    return "" if _result(pod) else (_terminated(pod).splitlines() or [""])[-1]


def _status(
    backup: Declared, last: LastBackup | None, coming: datetime | None, now: datetime, answer: tuple[Any, str, str]
) -> FleetBackupStatus:
    status, reason, message = answer
    before = next((entry for entry in backup.status.conditions if entry.type == "Ready"), None)
    since = before.last_transition_time if before and before.status == status else _text(now)
    ready = Condition("Ready", status, reason, message, since, backup.generation)
    if before and replace(ready, message=before.message) == before and reason == "Overdue":
        ready = before  # the pod's state changes often
    return FleetBackupStatus(backup.generation, last, _text(coming) if coming else None, (ready,))


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
