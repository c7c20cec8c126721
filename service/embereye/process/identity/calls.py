"""Which process may make which call: the one table, and the one question that every control port asks (pure).

Control ports serve what stands here and nothing else; ports for devices and people serve what does not stand here, or
is `open`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from embereye.process.identity.names import Identity, Role


@dataclass(frozen=True)
class Rule:
    """Who may make a call on a control port."""

    role: Role
    open: bool = False  # whether ports for devices and people serve it, too


CALLS: Mapping[str, Rule] = {
    "embereye.v1.Shard/Assign": Rule(Role.OPERATOR),
    "embereye.v1.Shard/Status": Rule(Role.OPERATOR),
    "embereye.v1.Shard/Inherit": Rule(Role.SHARD),
    "embereye.v1.Shard/Identify": Rule(Role.SHARD),
    "embereye.v1.Ingest/TakeOver": Rule(Role.SHARD),
    "embereye.v1.Relays/Pass": Rule(Role.SHARD),
    "embereye.v1.Sensors/Ask": Rule(Role.SHARD, open=True),  # passed on to the shard that owns the device
    "embereye.v1.Evidence/Report": Rule(Role.SHARD),
    "embereye.v1.Clips/Held": Rule(Role.SHARD),
    "embereye.v1.Clips/Deliver": Rule(Role.SHARD),
    "embereye.v1.Roster/Set": Rule(Role.OPERATOR),
    "embereye.v1.Roster/Retain": Rule(Role.OPERATOR),
    "embereye.v1.Roster/TellScaling": Rule(Role.OPERATOR),
}


def refusal(call: str, caller: Identity, own: Identity, namespaces: Collection[str] = ()) -> str:
    """Why `caller` may not make `call` ("package.Service/Method") to the process `own`; '' where it may.

    `namespaces` are those that it serves shards of; none: all.
    """
    rule = CALLS.get(call)
    if rule is None:
        return f"{call} is not served on a control port"
    if caller.role is not rule.role:
        return f"{call} is for the {rule.role}, and {caller} calls"
    if caller.role is Role.SHARD and own.role is Role.SHARD and caller.fleet != own.fleet:
        return f"{call} is for shards of {own.fleet}, and {caller} of {caller.fleet} calls"
    if caller.role is Role.SHARD and namespaces and caller.namespace not in namespaces:
        served = ", ".join(sorted(namespaces))
        return f"{own} serves shards of namespace {served}, and {caller} of {caller.fleet} calls"
    return ""
