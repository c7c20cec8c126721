"""The CustomResourceDefinitions, derived from the model."""

from typing import Any

import yaml

from embereye_operator.api.fleets import FLEET_TYPES, ROOT_RULES, FleetType
from embereye_operator.api.kinds import AddedKind, added_kinds
from embereye_operator.api.schema import Manifest, openapi
from embereye_operator.api.shared import GROUP, VERSION, VERSIONS
from embereye_operator.api.status import FleetStatus

HEADER = "# Written by `make crds`; change operator/embereye_operator/api instead.\n"
SCALE = {
    "specReplicasPath": ".spec.shards",
    "statusReplicasPath": ".status.shards",
    "labelSelectorPath": ".status.selector",
}
COVERED = '.status.conditions[?(@.type=="Covered")]'
COLUMNS: tuple[tuple[Any, ...], ...] = (  # see `_column`
    ("Shards", "integer", ".spec.shards", "Shards that should exist."),
    ("Ready", "integer", ".status.readyShards", "Shards that work under the current placement."),
    ("Devices", "string", ".status.devices.summary", "Devices covered, of those declared."),
    ("Covered", "string", f"{COVERED}.status", "True if every device is watched."),
    ("Reason", "string", f"{COVERED}.reason", "The reason.", 1),
    ("Observed", "date", ".status.lastObserved", "Time since the operator last wrote the status."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
)


def build_crd(kind: FleetType | AddedKind) -> Manifest:
    """Build the CustomResourceDefinition of one kind."""
    status, columns = (kind.status, kind.columns) if isinstance(kind, AddedKind) else (FleetStatus, COLUMNS)
    schema = {
        "type": "object",
        "description": (kind.spec.__doc__ or "").strip(),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": openapi(kind.spec),
            "status": _without_defaults(openapi(status)),
        },
        "x-kubernetes-validations": [rule.to_manifest() for rule in ROOT_RULES],
    }
    version: Manifest = {
        "served": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}} | ({} if isinstance(kind, AddedKind) else {"scale": SCALE}),
        "additionalPrinterColumns": [_column(*column) for column in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.resource,
                "listKind": f"{kind.resource}List",
                "plural": kind.plural,
                "singular": kind.resource.lower(),
                "shortNames": [kind.short],
                "categories": ["embereye"],
            },
            "versions": [{"name": name, "storage": name == VERSION, **version} for name in VERSIONS],
            "conversion": {"strategy": "None"},
        },
    }


def _without_defaults(schema: Manifest) -> Manifest:
    """Remove defaults: a status contains only observations."""
    return {
        key: _without_defaults(value) if isinstance(value, dict) else value
        for key, value in schema.items()
        if key != "default"
    }


def _column(name: str, type_: str, path: str, description: str, priority: int = 0) -> Manifest:
    column: Manifest = {"name": name, "type": type_, "jsonPath": path, "description": description}
    return column | ({"priority": priority} if priority else {})


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors: the defaults repeat, and people read the files."""

    def ignore_aliases(self, data: object) -> bool:
        """Write out every value."""
        return True


def render() -> dict[str, str]:
    """Return file name → content."""
    kinds: list[FleetType | AddedKind] = [*FLEET_TYPES.values(), *added_kinds()]
    return {
        f"{kind.plural}.yaml": HEADER + yaml.dump(build_crd(kind), Dumper=_Dumper, sort_keys=False, width=120)
        for kind in kinds
    }
