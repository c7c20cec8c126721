"""The fence before every write: it stops a replica that lost the lead, and writes for another operator's fleet."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from embereye_operator.errors import NotLeadingError
from embereye_operator.runtime.kubernetes.client.cache import Cache, ObjectKey


@dataclass(eq=False)
class Fence:
    """Call it before a write; it raises NotLeadingError if the write is not this operator's."""

    cache: Cache
    is_leading: Callable[[], bool]
    operator: str  # the name that owned fleets have in their status; empty: the operator can own none

    def __call__(self, fleets: Iterable[ObjectKey] = ()) -> None:
        """Check the lead, and that none of `fleets` is being deleted or belongs to another operator."""
        if not self.is_leading():
            raise NotLeadingError("another replica leads: nothing is written")
        for key in fleets:
            if (stored := self.cache.objects.get(key)) is not None and stored.deleting:
                raise NotLeadingError(f"{' '.join(key)} is being deleted: nothing is written")
            if stored is not None and self.operator and stored.holder not in {"", self.operator}:
                raise NotLeadingError(f"{' '.join(key)} belongs to operator {stored.holder}: nothing is written")
