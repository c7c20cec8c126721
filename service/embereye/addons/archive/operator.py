"""The archive's part of the operator: it reconciles FleetBackups."""

from embereye.addons.archive.resource.keeper import FleetBackups
from embereye.process.telemetry.metric import Scraped
from embereye_operator.addon import OperatorContext, OperatorPart


def build(context: OperatorContext) -> OperatorPart:
    """Build the part."""
    backups = FleetBackups(context)
    return OperatorPart(name="fleet-backups", run=backups.run, collectors=[Scraped(backups.metrics)])
