"""Whether an observed object already says what a desired manifest says."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from lightkube.utils.quantity import parse_quantity

# What tells the entries of Kubernetes' associative lists apart. Entries that others added are theirs: a sidecar
# injector's container is not ours to fight over.
MERGE_KEYS = ("name", "uid", "mountPath", "topologyKey")
# Replaced as a whole by the API server: one entry more selects other pods.
ATOMIC = frozenset({"selector", "matchLabels", "nodeSelector"})
QUANTITIES = frozenset({"requests", "limits"})


def quantity(value: object) -> Decimal | None:
    """`"500m"`, `"0.5"` and `0.5` as the same number; None where `value` is no quantity."""
    try:
        return parse_quantity(str(value))
    except ValueError:
        return None


def differences(desired: Any, observed: Any, path: str = "") -> list[str]:
    """Paths where `observed` lacks or contradicts what `desired` says; what only `observed` has is left alone."""
    key = path.rsplit(".", 1)[-1]
    if isinstance(desired, Mapping):
        return _mapping(desired, observed, path, exact=key in ATOMIC, quantities=key in QUANTITIES)
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return _sequence(desired, observed, path)
    return [] if desired == observed or (_empty(desired) and _empty(observed)) else [path]


def _empty(value: Any) -> bool:
    # The API server leaves out what is empty.
    return value is None or value is False or value in ("", [], {})


def _mapping(desired: Mapping[str, Any], observed: Any, path: str, *, exact: bool, quantities: bool) -> list[str]:
    if not isinstance(observed, Mapping):
        return [] if _empty(desired) and _empty(observed) else [path]
    if quantities:
        return [f"{path}.{name}" for name in desired if quantity(desired[name]) != quantity(observed.get(name))]
    found = [where for name in desired for where in differences(desired[name], observed.get(name), f"{path}.{name}")]
    return found + [f"{path}.{name}" for name in observed if exact and name not in desired]


def _sequence(desired: Sequence[Any], observed: Any, path: str) -> list[str]:
    if not isinstance(observed, Sequence) or isinstance(observed, str):
        return [] if _empty(desired) and _empty(observed) else [path]
    key = next((key for key in MERGE_KEYS if desired and all(_has(entry, key) for entry in desired)), None)
    if key is None:
        if len(desired) != len(observed):
            return [path]
        pairs = zip(desired, observed, strict=True)
        return [where for i, (a, b) in enumerate(pairs) for where in differences(a, b, f"{path}[{i}]")]
    known = {entry[key]: entry for entry in observed if _has(entry, key)}
    return [where for entry in desired for where in differences(entry, known.get(entry[key]), f"{path}[{entry[key]}]")]


def _has(entry: Any, key: str) -> bool:
    return isinstance(entry, Mapping) and key in entry
