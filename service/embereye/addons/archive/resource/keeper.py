"""Reconciles FleetBackups: keeps their CronJobs as declared, and writes their status when it changes.

Every few seconds the leading operator lists the FleetBackups of the release's namespace. Only if there are some, it
reads their CronJobs, Jobs and pods. Nothing is written while nothing changes.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client.core import Metric

from embereye.addons.archive.metrics import AGE, OVERDUE, READY, SIZE
from embereye.addons.archive.resource.decide import LABEL_BACKUP, Declared, build_cron_job, judge
from embereye.addons.archive.resource.model import FLEET_BACKUP, FleetBackupSpec, FleetBackupStatus
from embereye.process.condition import Condition
from embereye.process.repeat import repeat
from embereye_operator.addon import OperatorContext
from embereye_operator.api.schema import Manifest, from_manifest, schema_of, to_manifest, with_defaults
from embereye_operator.api.shared import API_VERSION
from embereye_operator.decide.event_correlator import Entry
from embereye_operator.decide.ownership.applied import ANNOTATION_APPLIED
from embereye_operator.errors import RefusedError
from embereye_operator.runtime.kubernetes.client.answers import (
    apply,
    create_event,
    find,
    list_existing,
    list_objects,
    tolerating,
)
from embereye_operator.runtime.kubernetes.client.resources import CRON_JOBS, JOBS, POD_TEMPLATES, PODS, custom
from embereye_operator.runtime.kubernetes.events import build_event, event_name

logger = logging.getLogger(__name__)
PERIOD = 10.0  # seconds
BACKUPS = custom(FLEET_BACKUP.resource, FLEET_BACKUP.plural)
WATCHED_FIELDS = ("schedule", "timeZone", "suspend")  # of the CronJob: restored if somebody changes them


class FleetBackups:
    """Reconciles the FleetBackups of a release. `run` it until cancelled."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._overdue: dict[str, tuple[FleetBackupStatus, timedelta]] = {}  # by name, as of the latest pass

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await repeat(self.reconcile, PERIOD, Condition(logger), "cannot reconcile backups: %s", wake=asyncio.Event())

    async def reconcile(self) -> None:
        """Make one pass over all FleetBackups."""
        context, judged = self._context, {}
        if context.is_leading():
            # An older chart has no such kind.
            listed = await list_existing(context.client, BACKUPS, context.namespace)
            wanted = [manifest for manifest in listed if self._is_ours(manifest)]
            if wanted:
                children = [
                    await list_objects(context.client, kind, context.namespace, labels={LABEL_BACKUP: None})
                    for kind in (CRON_JOBS, JOBS, PODS)
                ]
                for manifest in wanted:
                    name = str(manifest["metadata"]["name"])
                    related = [[child for child in each if _backup_of(child) == name] for each in children]
                    judged[name] = await self._reconcile(manifest, *related)
        self._overdue = judged

    def _is_ours(self, manifest: Manifest) -> bool:
        metadata = manifest["metadata"]
        return not metadata.get("deletionTimestamp") and self._context.is_selected(metadata.get("labels") or {})

    async def _reconcile(
        self, manifest: Manifest, cron_jobs: Sequence[Manifest], jobs: Sequence[Manifest], pods: Sequence[Manifest]
    ) -> tuple[FleetBackupStatus, timedelta]:
        backup = _declared(manifest)
        try:
            trouble = await self._keep_cron_job(backup, cron_jobs)
        except RefusedError as error:
            trouble = str(error)
        verdict = judge(backup, jobs, pods, datetime.now(UTC), trouble)
        if verdict.status != backup.status and self._context.is_leading():
            await self._report(backup, verdict.status)
        return verdict.status, verdict.overdue

    async def _keep_cron_job(self, backup: Declared, existing: Sequence[Manifest]) -> str:
        """Write the CronJob if it differs from the declared one; why that is impossible, or ''. RefusedError."""
        context = self._context
        name = "-".join(filter(None, (context.release, backup.spec.hub, "hub-backup")))
        template = None
        with tolerating(403):  # the operator's right names the hubs of its release
            template = await find(context.client, POD_TEMPLATES, name, context.namespace)
        if template is None:
            return f"PodTemplate {name} does not exist: spec.hub names no hub of this release, or its chart is older"
        wanted = build_cron_job(backup, template)
        for known in existing:
            same = known["metadata"].get("annotations", {}).get(ANNOTATION_APPLIED)
            if same == wanted["metadata"]["annotations"][ANNOTATION_APPLIED] and all(
                known["spec"].get(field, False) == wanted["spec"][field] for field in WATCHED_FIELDS
            ):
                return ""
        if context.is_leading():
            await apply(context.client, CRON_JOBS, wanted)
        return ""

    async def _report(self, backup: Declared, status: FleetBackupStatus) -> None:
        """Write the status, and an Event if the answer is a new one."""
        context = self._context
        place = {"name": backup.name, "namespace": backup.namespace, "uid": backup.uid}
        kind = {"apiVersion": API_VERSION, "kind": FLEET_BACKUP.resource}
        before, after = ((each.conditions or (None,))[0] for each in (backup.status, status))
        if after and (not before or (before.status, before.reason) != (after.status, after.reason)):
            logger.info("backup %s/%s: %s: %s", backup.namespace, backup.name, after.reason, after.message)
            await create_event(context.client, _event({**kind, **place}, after))
        await apply(context.client, BACKUPS.Status, {**kind, "metadata": place, "status": to_manifest(status)})

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of all FleetBackups, as the leader knows them."""
        namespace, now = self._context.namespace, datetime.now(UTC)
        rows = {(namespace, name): judged for name, judged in self._overdue.items()}
        made = {key: status.last_backup for key, (status, _) in rows.items() if status.last_backup}
        yield READY.rows((key, status.conditions[0].status == "True") for key, (status, _) in rows.items())
        yield OVERDUE.rows((key, overdue.total_seconds()) for key, (_, overdue) in rows.items())
        yield AGE.rows((key, (now - datetime.fromisoformat(last.time)).total_seconds()) for key, last in made.items())
        yield SIZE.rows((key, last.bytes) for key, last in made.items())


def _backup_of(child: Mapping[str, Any]) -> str:
    return str((child["metadata"].get("labels") or {}).get(LABEL_BACKUP, ""))


def _declared(manifest: Manifest) -> Declared:
    """Parse a FleetBackup, which the API server has validated."""
    metadata, spec = manifest["metadata"], with_defaults(schema_of(FleetBackupSpec), manifest["spec"])
    return Declared(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        generation=int(metadata["generation"]),
        created=datetime.fromisoformat(metadata["creationTimestamp"]),
        spec=from_manifest(FleetBackupSpec, spec),
        status=from_manifest(FleetBackupStatus, manifest.get("status") or {}),
    )


def _event(about: Mapping[str, str], ready: Any) -> Manifest:
    now = time.time_ns()
    entry = Entry(
        about["uid"], "Warning" if ready.status == "False" else "Normal", ready.reason, ready.message, now, now
    )
    prefix = f"{about['name']}-backup"
    entry.name = event_name(prefix, about["uid"], ready.reason, ready.message, ready.last_transition_time)
    return build_event(entry, about)
