"""The fields of a FleetBackup."""

import re
from typing import Any, Literal

from embereye.addons.archive.resource.schedule import PATTERN
from embereye_operator.api.kinds import AddedKind
from embereye_operator.api.schema import Resource, Rule, described
from embereye_operator.api.shared import HUB_NAME, object_name
from embereye_operator.api.status import Condition

PLACES = ("s3", "claim")
PART = "[A-Za-z0-9_-][A-Za-z0-9._-]*"
FOLDER = f"^({PART}(/{PART})*)?$"

IN_CRONS_FORM = Rule(
    f"self.matches('{PATTERN}')",
    "must be minute, hour, day, month and weekday in cron's form, such as 0 3 * * * or 30 */6 * * MON-FRI",
    lambda value, _: bool(re.fullmatch(PATTERN.strip("^$"), value)),
)


def _folder(description: str, example: str) -> Any:
    return described(description, default="", pattern=FOLDER, hint=f"is not a folder {example}", max_length=200)


class KeySecret(Resource):
    """A Secret in the backup's namespace."""

    name: str = object_name("Secret", "Name of the Secret; its keys are access-key-id and secret-access-key.")


class S3Bucket(Resource):
    """A bucket of Amazon S3, or of a service with the same API."""

    bucket: str = described(
        "Name of the bucket.",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        hint="is not the name of a bucket",
        max_length=63,
    )
    prefix: str = _folder("Folder in the bucket. Two hubs need separate ones.", "such as site-1")
    region: str = described(
        "Region of the bucket.",
        default="us-east-1",
        pattern=r"^[a-z0-9-]+$",
        hint="is not a region such as eu-central-1",
        max_length=50,
    )
    endpoint: str = described(
        "URL of a service other than Amazon's.",
        default="",
        pattern=r"^(https?://[A-Za-z0-9.:_-]+(/[A-Za-z0-9._/-]*)?)?$",
        hint="is not of the form https://HOST:PORT",
        max_length=253,
    )
    credentials_secret: KeySecret | None = described(
        "The key to the bucket. Without it, the pod's environment or role must have one.", default=None
    )


class ClaimFolder(Resource):
    """A folder in a PersistentVolumeClaim of the backup's namespace, for example on a file server."""

    name: str = object_name("claim", "Name of the claim.")
    path: str = _folder("Folder in the volume.", "in the volume, such as site-1")


class Destination(Resource):
    """The place of the backups."""

    RULES = (
        Rule(
            "has(self.s3) != has(self.claim)",
            f"needs exactly one of {', '.join(PLACES)}",
            lambda value, _: sum(name in value for name in PLACES) == 1,
        ),
    )
    s3: S3Bucket | None = described("A bucket of S3.", default=None)
    claim: ClaimFolder | None = described("A folder in a volume.", default=None)


class FleetBackupSpec(Resource):
    """Backups of a hub's history, tokens and clips on a schedule. It must be in the namespace of the hub's release."""

    schedule: str = described(
        "Times in cron's form: minute, hour, day, month, weekday.",
        pattern=r"^[^ ]+( [^ ]+){4}$",
        hint="does not have five fields, such as 0 3 * * *",
        max_length=100,
        rules=(IN_CRONS_FORM,),
    )
    destination: Destination = described("The place of the backups.")
    time_zone: str = described(
        "Time zone of the schedule.",
        default="Etc/UTC",
        pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
        hint="is not a time zone such as Europe/Berlin",
        max_length=64,
    )
    suspend: bool = described("Make no backups for now.", default=False)
    hub: str = described(
        "Name of the hub in the chart's value hubs; empty: the release's.",
        default="",
        pattern=f"^({HUB_NAME.strip('^$')})?$",
        hint="is not the name of a hub",
        max_length=20,
    )
    include: Literal["HistoryAndClips", "History"] = described(
        "Content of a backup. The history has zones, tokens and settings, too.", default="HistoryAndClips"
    )
    keep: int = described(
        "The newest backups that are not deleted; 0: all. Clips are never deleted.", default=14, between=(0, 1000)
    )


class LastBackup(Resource):
    """A backup that was made."""

    time: str = described("Time at which it was begun.", format="date-time")
    name: str = described("Its name, for hub.archive.restore.", default="", max_length=63)
    seconds: float = described("Seconds that it took.", default=0.0)
    bytes: int = described("Size of the compressed history.", default=0)
    size: str = described("The same for people.", default="", max_length=20)
    clips: int = described("Clips that were new.", default=0)


class FleetBackupStatus(Resource):
    """The status of a FleetBackup, as the operator writes it."""

    observed_generation: int = described("Generation of the spec that the status refers to.", default=0)
    last_backup: LastBackup | None = described("The newest backup.", default=None)
    next_backup: str | None = described("Time at which the next one begins.", default=None, format="date-time")
    conditions: tuple[Condition, ...] = described(
        "Ready: the newest backup that was due was made. Otherwise its message says why not.",
        default=(),
        list_key="type",
        max_items=4,
    )


READY = '.status.conditions[?(@.type=="Ready")]'
FLEET_BACKUP = AddedKind(
    "FleetBackup",
    "fleetbackups",
    "fb",
    FleetBackupSpec,
    FleetBackupStatus,
    (
        ("Schedule", "string", ".spec.schedule", "Times in cron's form."),
        ("Last", "date", ".status.lastBackup.time", "Time since the newest backup was begun."),
        ("Size", "string", ".status.lastBackup.size", "Size of its compressed history."),
        ("Next", "string", ".status.nextBackup", "Time at which the next one begins."),
        ("Ready", "string", f"{READY}.status", "True if the newest backup that was due was made."),
        ("Reason", "string", f"{READY}.reason", "The reason."),
        ("Name", "string", ".status.lastBackup.name", "Name of the newest backup.", 1),
        ("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
    ),
)
