"""Custom resources that add-ons have beside the fleets: each in the module `resources` of its add-on, as `KINDS`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from embereye.process.addons import addon_modules
from embereye_operator.api.schema import Resource


@dataclass(frozen=True, slots=True)
class AddedKind:
    """A custom resource of an add-on."""

    resource: str  # "FleetBackup"
    plural: str
    short: str
    spec: type[Resource]
    status: type[Resource]
    columns: Sequence[tuple[Any, ...]]  # of `kubectl get`: name, type, path, description, perhaps priority


def added_kinds() -> list[AddedKind]:
    """Return the custom resources of all add-ons."""
    return [kind for addon in addon_modules("resources") for kind in addon.KINDS]
