"""The rights that the operator misses, as the API server reports them for each watched namespace."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lightkube import AsyncClient
from lightkube.generic_resource import create_global_resource

from embereye_operator.decide.cluster.rights import missing_rights
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES

logger = logging.getLogger(__name__)
REVIEWS: Any = create_global_resource("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews")


@dataclass(eq=False)
class Rights:
    """Compares the operator's rights with those it needs; call `check` periodically."""

    client: AsyncClient
    namespaces: Sequence[str]
    _missing: dict[str, str] = field(default_factory=dict)  # namespace → sentence

    def why_missing(self, namespace: str) -> str:
        """Return a sentence with the rights that are missing in `namespace`; empty if there are none."""
        return self._missing.get(namespace) or self._missing.get(ALL_NAMESPACES, "")

    async def check(self) -> bool:
        """Ask the API server for all rights; True if others are missing than at the last call."""
        missing = {}
        for namespace in self.namespaces:
            place = "" if namespace == ALL_NAMESPACES else f" in namespace {namespace}"
            # Rights everywhere are part of the rights in any namespace.
            spec = {"namespace": "default" if namespace == ALL_NAMESPACES else namespace}
            review = await self.client.create(REVIEWS.from_dict({"metadata": {}, "spec": spec}))
            status = dict(review)["status"]
            if status.get("incomplete"):  # an authorizer that cannot list its rules
                continue
            if refused := missing_rights(status.get("resourceRules") or ()):
                missing[namespace] = (
                    f"the operator has no right to {'; '.join(refused)}{place}. Restore its role: helm upgrade does so"
                )
        changed = missing != self._missing
        for sentence in missing.values() if changed else ():
            logger.warning("%s", sentence)
        if changed and not missing:
            logger.warning("the operator has all its rights again")
        self._missing = missing
        return changed
