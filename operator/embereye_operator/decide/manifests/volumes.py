"""Volumes that only some pods have: raw readings, models, camera credentials.

`deployment.py` and `container.py` call these functions, one for the volumes of a pod and one for its mounts, so names
must depend on the arguments only. Secrets and models are optional volumes: a missing one limits some devices, and must
not stop the shard. Only the certificate of the shard is required.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence

from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.models import DetectionModel
from embereye_operator.api.names import identity_name
from embereye_operator.api.schema import Manifest
from embereye_operator.api.sensors import SensorFleetSpec

MODEL, CANDIDATE_MODEL = "model", "candidate-model"  # names of volumes


def telemetry_claim(fleet: Fleet) -> str:
    """Return the PersistentVolumeClaim for raw readings; empty: none."""
    if isinstance(fleet.spec, SensorFleetSpec) and fleet.spec.telemetry.archive:
        return fleet.spec.telemetry.claim
    return ""


def model_volumes(fleet: Fleet) -> list[Manifest]:
    """Return the volumes with the models of the fleet and of its candidate; none for a model in the image."""
    if not isinstance(fleet.spec, CameraFleetSpec):
        return []
    detection = fleet.spec.detection
    candidate_model = detection.candidate.model if detection.candidate else None
    models = {MODEL: detection.model, CANDIDATE_MODEL: candidate_model}
    return [
        {"name": name} | source for name, model in models.items() if model is not None and (source := _source(model))
    ]


def _source(model: DetectionModel) -> Manifest:
    if model.config_map_ref:
        return {"configMap": {"name": model.config_map_ref.name, "optional": True}}  # optional, as Secrets are
    if model.volume_ref:
        return {"persistentVolumeClaim": {"claimName": model.volume_ref.claim_name, "readOnly": True}}
    return {}


def credential_volumes(secrets: Sequence[str]) -> dict[str, str]:
    """Return Secret → name of its volume: the Secret's name as a DNS label, made unique."""
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
    """Return the Secrets that authenticate devices to shards, and shards to devices."""
    access = fleet.spec.access
    tls = access and access.tls
    references = (access and access.tokens_ref, tls and tls.secret_ref, tls and tls.clients and tls.clients.ca_ref)
    return {reference.name for reference in references if reference}


def identity_volume(shard: str) -> Manifest:
    """Build the volume with the shard's certificate. No shard starts without one."""
    return {"name": "identity", "secret": {"secretName": identity_name(shard), "defaultMode": 0o440}}


def secret_volume(name: str) -> Manifest:
    """Build the source of a volume with the Secret.

    It is optional: a missing Secret darkens its cameras, but must not stop the shard from watching the others.
    """
    return {"secretName": name, "optional": True, "defaultMode": 0o440}
