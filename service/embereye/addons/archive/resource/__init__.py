"""FleetBackup: a custom resource that declares backups of a hub's history and clips on a schedule."""
