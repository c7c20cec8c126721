"""Whether an observed object already says what a desired manifest says."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from lightkube.utils.quantity import parse_quantity

# What tells the entries of Kubernetes' associative lists apart; the first that does counts. Entries that others added
# are theirs: a sidecar injector's container is not ours to fight over.
MERGE_KEYS = (("uid",), ("mountPath",), ("topologyKey", "whenUnsatisfiable"), ("topologyKey",), ("name",))
# Replaced as a whole by the API server: one entry more selects other pods.
ATOMIC = frozenset({"selector", "matchLabels", "nodeSelector"})
QUANTITIES = frozenset({"requests", "limits"})
Deviation = tuple[str, Any]  # path, what is there


def quantity(value: object) -> Decimal | None:
    """`"500m"`, `"0.5"` and `0.5` as the same number; None where `value` is no quantity."""
    try:
        return parse_quantity(str(value))
    except ValueError:
        return None


def differences(desired: Any, observed: Any) -> list[str]:
    """Paths where `observed` lacks or contradicts what `desired` says; what only `observed` has is left alone."""
    return [path for path, _ in deviations(desired, observed)]


def deviations(desired: Any, observed: Any, path: str = "") -> list[Deviation]:
    """The same with what `observed` says there."""
    key = path.rsplit(".", 1)[-1]
    if isinstance(desired, Mapping):
        return _mapping(desired, observed, path, exact=key in ATOMIC, quantities=key in QUANTITIES)
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return _sequence(desired, observed, path)
    return [] if desired == observed or (_empty(desired) and _empty(observed)) else [(path, observed)]


def _empty(value: Any) -> bool:
    # The API server leaves out what is empty.
    return value is None or value is False or value in ("", [], {})


def _mapping(desired: Mapping[str, Any], observed: Any, path: str, *, exact: bool, quantities: bool) -> list[Deviation]:
    if not isinstance(observed, Mapping):
        return [] if _empty(desired) and _empty(observed) else [(path, observed)]
    if quantities:
        said = {name: observed.get(name) for name in desired}
        return [(f"{path}.{name}", said[name]) for name in said if quantity(desired[name]) != quantity(said[name])]
    found = [other for name in desired for other in deviations(desired[name], observed.get(name), f"{path}.{name}")]
    return found + [(f"{path}.{name}", observed[name]) for name in observed if exact and name not in desired]


def _sequence(desired: Sequence[Any], observed: Any, path: str) -> list[Deviation]:
    if not isinstance(observed, Sequence) or isinstance(observed, str):
        return [] if _empty(desired) and _empty(observed) else [(path, observed)]
    for fields in MERGE_KEYS:
        wanted, known = _by_key(desired, fields), _by_key(observed, fields)
        # Where that does not tell all of them apart it is no key of this list.
        if wanted and len(wanted) == len(desired) and known is not None:
            return [
                other
                for key, entry in wanted.items()
                for other in deviations(entry, known.get(key), f"{path}[{'/'.join(map(str, key))}]")
            ]
    if len(desired) != len(observed):
        return [(path, observed)]
    pairs = zip(desired, observed, strict=True)
    return [other for i, (a, b) in enumerate(pairs) for other in deviations(a, b, f"{path}[{i}]")]


def _by_key(entries: Sequence[Any], fields: Sequence[str]) -> Mapping[tuple[Any, ...], Any] | None:
    """Those of `entries` that have all `fields`, by what these say; None where two say the same."""
    found: dict[tuple[Any, ...], Any] = {}
    for entry in entries:
        key = tuple(entry.get(name) for name in fields) if isinstance(entry, Mapping) else ()
        if not key or not all(isinstance(value, str) for value in key):
            continue
        if key in found:
            return None
        found[key] = entry
    return found
