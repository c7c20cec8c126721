"""The calls that each role of process may make on control ports. Pure.

Control ports serve exactly the calls in this table; ports for devices and people serve all other calls, and those that
are `open`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from embereye.process.identity.names import Identity, Role


@dataclass(frozen=True)
class Rule:
    """The role that may make a call on a control port."""

    role: Role
    open: bool = False  # ports for devices and people serve it, too


CALLS: Mapping[str, Rule] = {
    "embereye.v1.Shard/Assign": Rule(Role.OPERATOR),
    "embereye.v1.Shard/Status": Rule(Role.OPERATOR),
    "embereye.v1.Shard/Inherit": Rule(Role.SHARD),
    "embereye.v1.Shard/Identify": Rule(Role.SHARD),
    "embereye.v1.Ingest/TakeOver": Rule(Role.SHARD),
    "embereye.v1.Relays/Pass": Rule(Role.SHARD),
    "embereye.v1.Relays/Deliver": Rule(Role.SHARD),
    "embereye.v1.Sensors/Ask": Rule(Role.SHARD, open=True),  # forwarded to the shard that owns the device
    "embereye.v1.Evidence/Report": Rule(Role.SHARD),
    "embereye.v1.Live/Show": Rule(Role.SHARD),
    "embereye.v1.Margins/Store": Rule(Role.SHARD),
    "embereye.v1.Candidates/Report": Rule(Role.SHARD),
    "embereye.v1.Clips/Held": Rule(Role.SHARD),
    "embereye.v1.Clips/Deliver": Rule(Role.SHARD),
    "embereye.v1.Roster/Set": Rule(Role.OPERATOR),
    "embereye.v1.Roster/Retain": Rule(Role.OPERATOR),
    "embereye.v1.Roster/TellScaling": Rule(Role.OPERATOR),
    "embereye.v1.Roster/Heard": Rule(Role.OPERATOR),
}


def refusal(call: str, caller: Identity, server: Identity, namespaces: Collection[str] = ()) -> str:
    """The reason why `caller` may not make `call` ("package.Service/Method") to the process `server`; '' if it may.

    `server` accepts shards of `namespaces`; empty: all.
    """
    rule = CALLS.get(call)
    if rule is None:
        return f"{call} is not served on a control port"
    if caller.role is not rule.role:
        return f"{call} is for the role {rule.role}, but the caller is {caller}"
    if caller.role is Role.SHARD and server.role is Role.SHARD and caller.fleet != server.fleet:
        return f"{call} is for shards of {server.fleet}, but the caller is {caller} of {caller.fleet}"
    if caller.role is Role.SHARD and namespaces and caller.namespace not in namespaces:
        served = ", ".join(sorted(namespaces))
        return f"{server} serves shards of namespace {served}, but the caller is {caller} of {caller.fleet}"
    return ""
