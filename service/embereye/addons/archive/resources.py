"""The custom resources of the archive."""

from embereye.addons.archive.resource.model import FLEET_BACKUP

KINDS = (FLEET_BACKUP,)
