"""Volumes that only some fleets' pods have: raw readings, models, cameras' credentials."""

import hashlib
from collections import Counter
from collections.abc import Sequence

from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.manifests.names import identity_name


def telemetry_claim(fleet: Fleet) -> str:
    """The PersistentVolumeClaim that raw readings are kept in; empty: none."""
    if isinstance(fleet.spec, SensorFleetSpec) and fleet.spec.telemetry.archive:
        return fleet.spec.telemetry.claim
    return ""


def model_volume(fleet: Fleet) -> list[Manifest]:
    """The volume with the fleet's own model, where it has one that is not in the image."""
    model = fleet.spec.detection.model if isinstance(fleet.spec, CameraFleetSpec) else None
    if model is not None and model.config_map_ref:
        source = {"name": model.config_map_ref.name, "optional": True}  # as a Secret
        return [{"name": "model", "configMap": source}]
    if model is not None and model.volume_ref:
        claim = {"claimName": model.volume_ref.claim_name, "readOnly": True}
        return [{"name": "model", "persistentVolumeClaim": claim}]
    return []


def credential_volumes(secrets: Sequence[str]) -> dict[str, str]:
    """Secret → name of its volume, which is the Secret's own as far as a DNS label can say it and no two share."""
    plain = {secret: f"credentials-{secret.replace('.', '-')}"[:63].rstrip("-") for secret in sorted(secrets)}
    uses = Counter(plain.values())
    names: dict[str, str] = {}
    for secret, name in plain.items():
        names[secret], attempt = name, 0
        while uses[names[secret]] > (1 if attempt == 0 else 0):
            unique = hashlib.blake2b(f"{secret}/{attempt}".encode(), digest_size=8).hexdigest()
            names[secret] = f"{name[: 63 - len(unique) - 1].rstrip('-')}-{unique}"
            attempt += 1
        uses[names[secret]] += attempt
    return names


def access_secrets(fleet: Fleet) -> set[str]:
    """The Secrets by which devices prove themselves to shards, and shards to devices."""
    access = fleet.spec.access
    tls = access and access.tls
    references = (access and access.tokens_ref, tls and tls.secret_ref, tls and tls.clients and tls.clients.ca_ref)
    return {reference.name for reference in references if reference}


def identity_volume(shard: str) -> Manifest:
    """The volume with the certificate that a shard proves itself with. No shard starts without."""
    return {"name": "identity", "secret": {"secretName": identity_name(shard), "defaultMode": 0o440}}


def secret_volume(name: str) -> Manifest:
    """What a volume with the Secret says.

    A Secret that is missing darkens its cameras; it must not keep the shard from watching the others.
    """
    return {"secretName": name, "optional": True, "defaultMode": 0o440}
