"""The alerts and the panels of the archive: evidence or a backup is missing in its place."""

from embereye_operator.monitoring.alert import HUB, Alert
from embereye_operator.monitoring.panel import C, Panel, line

ALERTS = (
    Alert(
        "EmberEyeEvidenceNotArchived", "warning", "release",
        f"max by ({HUB}) (embereye_hub_archive_lag_seconds) > 300", "1m",
        "Evidence is not uploaded to the bucket",
        "Pictures or events have waited for {{ $value | humanizeDuration }}: the hub's log has the reason. Alarms are "
        "not affected.",
        "Only with hub.archive. EmberEyeHubDown fires for a missing hub.",
    ),
    Alert(
        "EmberEyeBackupMissing", "warning", "release",
        f"max by ({HUB}) (embereye_hub_archive_backup_overdue_seconds) > 1800", "5m",
        "The hub's history was not backed up",
        "A backup has been due for {{ $value | humanizeDuration }}: the hub's log has the reason. Alarms are not "
        "affected.",
        "Only with backupEvery in hub.archive.config. EmberEyeHubDown fires for a missing hub.",
    ),
    Alert(
        "EmberEyeFleetBackupMissing", "warning", "release",
        "max by (cluster, namespace, backup) (embereye_operator_backup_overdue_seconds) > 3600", "5m",
        "Backup {{ $labels.backup }} was not made",
        "A backup has been due for {{ $value | humanizeDuration }}: kubectl describe fleetbackup {{ $labels.backup }} "
        "-n {{ $labels.namespace }} has the reason. Alarms are not affected.",
        "EmberEyeOperatorAbsent",
    ),
)  # fmt: skip
PANELS = (
    Panel("Evidence in the bucket", "Time for which the oldest evidence has waited for its upload.", "s",
          "EmberEyeEvidenceNotArchived", line(f"max(embereye_hub_archive_lag_seconds{{{C}}})", "waiting"),
          warning=60, critical=300, needs="hub.archive"),
    Panel("Newest backup", "Time since the newest backup of the hub's history was begun.", "s",
          "EmberEyeBackupMissing", line(f"max(embereye_hub_archive_backup_age_seconds{{{C}}})", "age"),
          needs="backupEvery in hub.archive.config"),
    Panel("Newest FleetBackup", "Time since the newest backup of each FleetBackup was begun.", "s",
          "EmberEyeFleetBackupMissing",
          line(f"max by (backup) (embereye_operator_backup_age_seconds{{{C}}})", "{{backup}}"),
          needs="a FleetBackup"),
)  # fmt: skip
