"""The comparison of an observed object with a desired manifest.

The API server adds defaults and other writers add fields, so equality would never hold. `deviations` reports only paths
where the observed object lacks or contradicts a desired field. Lists are matched by Kubernetes' merge keys, quantities
by value, and a few maps exactly. A pass writes an object only if it has deviations that its last write did not leave.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from lightkube.utils.quantity import parse_quantity

# The fields that identify entries of Kubernetes' associative lists; the first that does applies. Additional entries
# belong to others: the operator must not remove a sidecar injector's container.
MERGE_KEYS = (("uid",), ("mountPath",), ("topologyKey", "whenUnsatisfiable"), ("topologyKey",), ("name",))
# The API server replaces these as a whole: one additional entry selects other pods.
ATOMIC = frozenset({"selector", "matchLabels", "nodeSelector"})
QUANTITIES = frozenset({"requests", "limits"})
Deviation = tuple[str, Any]  # path, observed value


def quantity(value: object) -> Decimal | None:
    """Parse a quantity, so that `"500m"`, `"0.5"` and `0.5` are equal; None if `value` is no quantity."""
    try:
        return parse_quantity(str(value))
    except ValueError:
        return None


def differences(desired: Any, observed: Any) -> list[str]:
    """Return the paths at which `observed` lacks or contradicts `desired`; surplus fields are ignored."""
    return [path for path, _ in deviations(desired, observed)]


def deviations(desired: Any, observed: Any, path: str = "") -> list[Deviation]:
    """Return the same paths, with the observed values."""
    key = path.rsplit(".", 1)[-1]
    if isinstance(desired, Mapping):
        return _mapping(desired, observed, path, exact=key in ATOMIC, quantities=key in QUANTITIES)
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return _sequence(desired, observed, path)
    return [] if desired == observed or (_empty(desired) and _empty(observed)) else [(path, observed)]


def _empty(value: Any) -> bool:
    # The API server omits empty values.
    return value is None or value is False or value in ("", [], {})


def _mapping(desired: Mapping[str, Any], observed: Any, path: str, *, exact: bool, quantities: bool) -> list[Deviation]:
    if not isinstance(observed, Mapping):
        return [] if _empty(desired) and _empty(observed) else [(path, observed)]
    if quantities:
        values = {name: observed.get(name) for name in desired}
        return [
            (f"{path}.{name}", values[name]) for name in values if quantity(desired[name]) != quantity(values[name])
        ]
    result = [
        deviation for name in desired for deviation in deviations(desired[name], observed.get(name), f"{path}.{name}")
    ]
    return result + [(f"{path}.{name}", observed[name]) for name in observed if exact and name not in desired]


def _sequence(desired: Sequence[Any], observed: Any, path: str) -> list[Deviation]:
    if not isinstance(observed, Sequence) or isinstance(observed, str):
        return [] if _empty(desired) and _empty(observed) else [(path, observed)]
    for fields in MERGE_KEYS:
        wanted, known = _by_key(desired, fields), _by_key(observed, fields)
        # Fields that do not identify every entry are no key of this list.
        if wanted and len(wanted) == len(desired) and known is not None:
            return [
                deviation
                for key, entry in wanted.items()
                for deviation in deviations(entry, known.get(key), f"{path}[{'/'.join(map(str, key))}]")
            ]
    if len(desired) != len(observed):
        return [(path, observed)]
    pairs = zip(desired, observed, strict=True)
    return [deviation for i, (a, b) in enumerate(pairs) for deviation in deviations(a, b, f"{path}[{i}]")]


def _by_key(entries: Sequence[Any], fields: Sequence[str]) -> Mapping[tuple[Any, ...], Any] | None:
    """Map the entries with all `fields` by these; None if two entries are equal in them."""
    by_key: dict[tuple[Any, ...], Any] = {}
    for entry in entries:
        key = tuple(entry.get(name) for name in fields) if isinstance(entry, Mapping) else ()
        if not key or not all(isinstance(value, str) for value in key):
            continue
        if key in by_key:
            return None
        by_key[key] = entry
    return by_key
