"""The runtime of local processes, without processes."""

import gc
from dataclasses import astuple
from pathlib import Path

import grpc
import pytest

from embereye.process.addresses import PORTS_VARIABLE, free_ports
from embereye.process.identity.names import Identity, Role
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.manifests.deployment import build_deployment
from embereye_operator.runtime.local.processes import Supervisor
from embereye_operator.runtime.local.runtime import LocalRuntime

from ..api.test_schema import camera, manifest
from ..fakes import SETTINGS

SHARDS = [f"hall-cameras-{number}" for number in range(4)]


def channels() -> int:
    gc.collect()
    return sum(isinstance(candidate, grpc.aio.Channel) for candidate in gc.get_objects())


async def test_connections_to_deleted_shards_are_closed(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, "127.0.0.1:1", Supervisor(tmp_path, lambda _: None))
    fleet = parse_fleet(manifest("CameraFleet", {"cameras": [camera()]}, uid="u"))
    before = channels()
    for _ in range(3):
        for shard in SHARDS:
            assert await runtime.shard_status(fleet, shard) is None
        assert channels() == before + len(SHARDS)
        for shard in SHARDS:
            await runtime.delete(build_deployment(fleet, shard, SETTINGS))
        assert channels() == before
    await runtime.close()


async def test_certificates_of_deleted_shards_are_not_renewed(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, "127.0.0.1:1", Supervisor(tmp_path, lambda _: None))
    fleet = parse_fleet(manifest("CameraFleet", {"cameras": [camera()]}, uid="u"))
    remembered = runtime.identities._known.copy(), runtime.identities._names.copy()
    for number in range(20):
        shard = f"hall-cameras-{number}"
        runtime.identities.add_names(Identity(Role.SHARD, fleet.namespace, shard, fleet.key), ("localhost",))
        assert len(runtime.identities._known) == len(remembered[0]) + 1
        await runtime.delete(build_deployment(fleet, shard, SETTINGS))
    assert (runtime.identities._known, runtime.identities._names) == remembered
    await runtime.close()


def test_a_shard_never_gets_a_reserved_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_ports(1)[0]
    monkeypatch.setenv(PORTS_VARIABLE, f"{first}-{first + 49}")
    taken = set(range(first, first + 25))
    runtime = LocalRuntime(tmp_path, "127.0.0.1:1", Supervisor(tmp_path, lambda _: None), taken=taken)
    assert not taken.intersection(astuple(runtime._shard_ports("default", "hall-0")))
    taken.update(range(first + 25, first + 35))
    assert not taken.intersection(astuple(runtime._shard_ports("default", "hall-1")))
