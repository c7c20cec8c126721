"""Zones of people from an identity provider, by the values of their claim."""

import pytest

from embereye.hub.oidc.options import RoleRules
from embereye.hub.roles import Role, read_scope

RULES = RoleRules(
    "groups",
    {
        "guards": Role.OPERATOR,
        "wardens": Role.OPERATOR,
        "chiefs": Role.ADMIN,
        "staff": Role.VIEWER,
        "lab": Role.OPERATOR,
        "yard": Role.OPERATOR,
    },
    {
        "guards": read_scope(["hall/*"]),
        "lab": read_scope(["lab/a", "lab/b"]),
        "yard": read_scope(["hall/cameras/yard"]),
    },
)


@pytest.mark.parametrize(
    ("groups", "patterns"),
    [
        (["guards"], ["hall/*"]),
        (["guards", "lab"], ["hall/*", "lab/a", "lab/b"]),
        (["yard"], ["hall/cameras/yard"]),
        (["yard", "lab"], ["hall/cameras/yard", "lab/a", "lab/b"]),
        (["guards", "wardens"], []),  # one group that gives the role has no limit
        (["guards", "staff"], ["hall/*"]),  # a lower role adds no zones
        (["guards", "chiefs"], []),
        (["wardens"], []),
    ],
)
def test_the_groups_that_give_the_role_give_the_zones(groups: list[str], patterns: list[str]) -> None:
    assert list(RULES.scope({"groups": groups}).patterns) == patterns
