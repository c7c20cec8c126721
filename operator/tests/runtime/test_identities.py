"""Certificates on a real API server, and shards in this process that require them."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.eventually import eventually
from harness.servers.apiserver import ApiServer, path_of
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError

from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.process.identity.authority import LIFE, Authority, served_names, utc_now
from embereye.process.identity.credentials import Certificate, Credentials, read_certificate, verify_certificate
from embereye.process.identity.names import Identity, Role
from embereye.v1.shard_pb2 import StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub, add_ShardServicer_to_server
from embereye_operator import controller
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.api.shared import DeviceAccess, DeviceTls
from embereye_operator.errors import RefusedError, TakenError, UnavailableError
from embereye_operator.runtime.kubernetes import identities
from embereye_operator.runtime.kubernetes.identities import ANNOTATION_EXPIRES, Identities
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, build_runtime

from ..fakes import SETTINGS
from ..processes.test_operator import create, sensor_fleet
from .test_kubernetes import ServedShard

pytestmark = pytest.mark.apiserver
SHARD = "hall-sensors-0"


@dataclass
class Release:
    cluster: ApiServer
    namespace: str
    client: AsyncClient
    identities: Identities
    fleet: Fleet

    def another(self, name: str = "embereye") -> Identities:
        """Return the identities of the next leader, or of another release."""
        return Identities(self.client, name=name, namespace=self.namespace, fence=lambda: None)

    def secret(self, name: str) -> Any:
        return self.cluster.get(f"/api/v1/namespaces/{self.namespace}/secrets/{name}")

    def files(self, name: str, folder: Path) -> Path:
        """Write the Secret as a pod mounts it."""
        folder.mkdir(exist_ok=True)
        for file, content in self.secret(name)["data"].items():
            (folder / file).write_bytes(base64.b64decode(content))
        return folder


@pytest.fixture
async def release(cluster: ApiServer, namespace: str) -> AsyncIterator[Release]:
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    fleet = parse_fleet(create(cluster, sensor_fleet(namespace)))
    release_ = Release(cluster, namespace, client, None, fleet)  # type: ignore[arg-type]
    release_.identities = release_.another()
    yield release_
    await client.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Move the issuer's clock forward."""
    now = utc_now
    ahead = timedelta(0)

    def put_forward(by: timedelta) -> None:
        nonlocal ahead
        ahead += by

    monkeypatch.setattr(identities, "utc_now", lambda: now() + ahead)
    return put_forward


async def test_the_hub_and_each_shard_get_a_certificate_with_their_identity(release: Release, tmp_path: Path) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    hub = read_certificate(release.files("embereye-hub-identity", tmp_path / "hub"))
    shard = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "shard"))
    assert hub.identity == Identity(Role.HUB, release.namespace, "embereye-hub")
    assert shard.identity == Identity(Role.SHARD, release.namespace, SHARD, release.fleet.key)
    assert hub.trusted == shard.trusted
    operator_credentials = release.identities.credentials
    assert operator_credentials is not None
    assert operator_credentials.identity == Identity(Role.OPERATOR, release.namespace, "embereye")
    owner = release.secret(f"{SHARD}-identity")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("SensorFleet", "hall")
    authority = release.secret("embereye-ca")["metadata"]["uid"]
    assert release.secret("embereye-hub-identity")["metadata"]["ownerReferences"][0]["uid"] == authority


@pytest.mark.parametrize("collected", ["before", "after"])
async def test_a_deleted_and_recreated_fleet_gets_new_certificates(release: Release, collected: str) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    name, declared = f"{SHARD}-identity", sensor_fleet(release.namespace)
    release.cluster.request("DELETE", path_of(declared))
    await eventually(lambda: not (collected == "before" and release.secret(name)), 30)
    again = parse_fleet(create(release.cluster, declared))
    await release.identities.identify(again, [SHARD])
    owner = release.secret(name)["metadata"]["ownerReferences"]
    assert [reference["uid"] for reference in owner] == [again.uid], "nothing deletes it with the fleet before"
    version = release.secret(name)["metadata"]["resourceVersion"]
    await release.identities.identify(again, [SHARD])
    assert release.secret(name)["metadata"]["resourceVersion"] == version


async def test_the_next_leader_uses_the_same_authority_and_certificates(release: Release) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    names = ("embereye-ca", "embereye-hub-identity", f"{SHARD}-identity")
    before = [release.secret(name)["metadata"]["resourceVersion"] for name in names]
    following = release.another()
    await following.renew([release.namespace])
    await following.identify(release.fleet, [SHARD])
    assert [release.secret(name)["metadata"]["resourceVersion"] for name in names] == before


async def test_another_releases_certificates_stay_until_the_fleet_is_taken_over(release: Release) -> None:
    name, other = f"{SHARD}-identity", release.another("other")
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    before = release.secret(name)["data"]
    await other.renew([release.namespace])
    assert release.secret(name)["data"] == before, "its shard belongs to the hub of its release"
    await other.identify(release.fleet, [SHARD])
    taken = release.secret(name)["data"]
    assert taken["ca.crt"] == release.secret("other-hub-identity")["data"]["ca.crt"]
    await release.another().renew([release.namespace])
    assert release.secret(name)["data"] == taken


async def test_an_empty_authority_of_the_chart_is_filled(release: Release) -> None:
    label = {"app.kubernetes.io/managed-by": "Helm"}
    metadata = {"name": "embereye-ca", "namespace": release.namespace, "labels": label}
    create(release.cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    await release.identities.renew([release.namespace])
    assert release.secret("embereye-ca")["metadata"]["labels"] == label  # else Helm does not install over it
    data = release.secret("embereye-ca")["data"]
    assert Authority.load(*(base64.b64decode(data[key]) for key in ("ca.crt", "ca.key"))).trusted


async def test_certificates_are_renewed_after_two_thirds_of_their_life(
    release: Release, clock: Callable[[timedelta], None]
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    names = ("embereye-hub-identity", f"{SHARD}-identity")

    def expire() -> list[str]:
        return [release.secret(name)["metadata"]["annotations"][ANNOTATION_EXPIRES] for name in names]

    first = expire()
    clock(LIFE * 0.6)
    await release.identities.renew([release.namespace])
    assert expire() == first
    clock(LIFE * 0.1)
    await release.identities.renew([release.namespace])
    assert all(later > earlier for later, earlier in zip(expire(), first, strict=True))


async def test_a_new_authority_is_trusted_by_all_before_it_signs(
    release: Release, tmp_path: Path, clock: Callable[[timedelta], None]
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    first = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "first"))
    clock(timedelta(days=250))
    await release.identities.renew([release.namespace])
    both = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "both"))
    assert (first.trusted.count(b"BEGIN"), both.trusted.count(b"BEGIN")) == (1, 2)
    assert both.trusted.startswith(first.trusted)
    (tmp_path / "both" / "ca.crt").write_bytes(first.trusted)
    assert read_certificate(tmp_path / "both"), "the first one still signs"
    clock(timedelta(days=5))
    await release.identities.renew([release.namespace])
    release.files(f"{SHARD}-identity", tmp_path / "second")
    (tmp_path / "second" / "ca.crt").write_bytes(first.trusted)
    with pytest.raises(ValueError, match="do not belong together"):
        read_certificate(tmp_path / "second")


async def test_deleted_certificates_are_issued_again_and_unowned_ones_deleted(
    release: Release, clock: Callable[[timedelta], None]
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD, "hall-sensors-1"])
    secret = release.secret(f"{SHARD}-identity")
    release.cluster.request("DELETE", path_of({**secret, "apiVersion": "v1", "kind": "Secret"}))
    clock(timedelta(minutes=11))
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    assert release.secret(f"{SHARD}-identity")
    assert release.secret("hall-sensors-1-identity") is None


async def test_nothing_is_issued_again_while_existing_certificates_are_listed(
    release: Release, clock: Callable[[timedelta], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    issued = release.secret(f"{SHARD}-identity")["data"]
    clock(timedelta(minutes=11))
    requested, may_answer, listed = asyncio.Event(), asyncio.Event(), release.client.list

    async def answer_later(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
        monkeypatch.setattr(release.client, "list", listed)
        requested.set()
        await may_answer.wait()
        async for secret in listed(*arguments, **named):
            yield secret

    monkeypatch.setattr(release.client, "list", answer_later)
    looking = asyncio.create_task(release.identities.renew([release.namespace]))
    await requested.wait()
    await release.identities.identify(release.fleet, [SHARD])
    may_answer.set()
    await looking
    assert release.secret(f"{SHARD}-identity")["data"] == issued


async def test_a_foreign_secret_is_left_unchanged(release: Release) -> None:
    metadata = {"name": f"{SHARD}-identity", "namespace": release.namespace}
    create(release.cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}})
    await release.identities.renew([release.namespace])
    with pytest.raises(TakenError, match=f"Secret {SHARD}-identity belongs to somebody else"):
        await release.identities.identify(release.fleet, [SHARD])
    assert set(release.secret(f"{SHARD}-identity")["data"]) == {"a"}


async def test_an_unwritable_certificate_delays_no_other(release: Release, clock: Callable[[timedelta], None]) -> None:
    metadata = {"name": f"{SHARD}-identity", "namespace": release.namespace}
    create(release.cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}})
    runtime = build_runtime(
        release.client, KubernetesOptions(hub="127.0.0.1:1", release=(release.namespace, "embereye"))
    )
    await runtime.links.renew_identities()
    shards = [SHARD, "hall-sensors-1", "hall-sensors-2"]
    with pytest.raises(TakenError, match=f"Secret {SHARD}-identity belongs to somebody else"):
        await runtime.links.identify(release.fleet, shards)
    first = [release.secret(f"{shard}-identity") for shard in shards[1:]]
    assert all(first), "the others have theirs"
    release.cluster.merge(path_of({**first[0], "apiVersion": "v1", "kind": "Secret"}), {"immutable": True})
    clock(LIFE * 0.7)
    leader = build_runtime(
        release.client, KubernetesOptions(hub="127.0.0.1:1", release=(release.namespace, "embereye"))
    )
    with pytest.raises(UnavailableError, match="Secret hall-sensors-1-identity"):
        await leader.links.renew_identities()
    assert release.secret("hall-sensors-2-identity")["data"] != first[1]["data"]
    assert leader.links._is_identified(), "the next leader can call the shards and the hub"


async def test_a_forbidden_name_in_a_certificate_delays_no_other(
    release: Release, clock: Callable[[timedelta], None]
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    first = release.secret(f"{SHARD}-identity")["data"]
    clock(LIFE * 0.7)
    names = ("fire.embereye.internal",)
    identities_ = Identities(
        release.client, name="embereye", namespace=release.namespace, fence=lambda: None, hub_names=names
    )
    with pytest.raises(
        RefusedError, match=r"hub .*: fire\.embereye\.internal: the domain embereye\.internal is reserved"
    ):
        await identities_.renew([release.namespace])
    assert release.secret(f"{SHARD}-identity")["data"] != first


async def test_a_forbidden_namespace_delays_no_certificate_elsewhere(
    release: Release, clock: Callable[[timedelta], None]
) -> None:
    metadata = {"name": "keeper", "namespace": release.namespace}
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "patch", "delete"]},
        {"apiGroups": ["embereye.dev"], "resources": ["sensorfleets/finalizers"], "verbs": ["update"]},
        {"apiGroups": [""], "resources": ["secrets/finalizers"], "verbs": ["update"]},
    ]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    reference = {"apiGroup": group, "kind": "Role", "name": "keeper"}
    subject = {"kind": "ServiceAccount", "namespace": "embereye", "name": "embereye-operator"}
    create(release.cluster, role)
    create(release.cluster, {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})
    client = AsyncClient(config=KubeConfig.from_file(release.cluster.operator_kubeconfig).get())
    operator = Identities(client, name="embereye", namespace=release.namespace, fence=lambda: None)
    await operator.renew([release.namespace])
    await operator.identify(release.fleet, [SHARD])
    names = ("embereye-hub-identity", f"{SHARD}-identity")
    before = [release.secret(name)["data"]["tls.crt"] for name in names]
    clock(LIFE * 0.7)
    with pytest.raises(ApiError, match="forbidden"):
        await operator.renew(["of-a-tenant-that-left", release.namespace])
    assert all(release.secret(name)["data"]["tls.crt"] != old for name, old in zip(names, before, strict=True))
    await client.close()


async def test_without_an_authority_nothing_is_issued_and_the_reason_is_known(release: Release) -> None:
    with pytest.raises(UnavailableError, match="no certificate has been issued yet"):
        await release.identities.identify(release.fleet, [SHARD])


async def test_the_operator_and_a_shard_authenticate_each_other(release: Release, tmp_path: Path) -> None:
    shard = ServedShard(SHARD)
    client = AsyncClient(config=KubeConfig.from_file(release.cluster.kubeconfig).get())
    options = KubernetesOptions(
        hub="127.0.0.1:9",
        namespaces=[release.namespace],
        release=(release.namespace, "embereye"),
        resolve=lambda *_: f"127.0.0.1:{port}",
    )
    runtime = build_runtime(client, options)
    assert runtime.links.identities is not None
    await runtime.links.renew_identities()
    await runtime.links.identify(release.fleet, [SHARD])
    credentials = Credentials(release.files(f"{SHARD}-identity", tmp_path / "shard"))
    service = Service(add_ShardServicer_to_server, shard, "embereye.v1.Shard")
    server = GrpcServer([service], control=True, credentials=credentials)
    port = server.listen("127.0.0.1:0")
    await server.start()
    key = ("Deployment", release.namespace, SHARD)
    runtime.world.cache.objects[key] = None  # type: ignore[assignment]
    status = await runtime.links.shard_status(release.fleet, SHARD)
    assert status is not None
    assert status.shard == SHARD
    runtime.world.cache.objects["Deployment", release.namespace, "hall-sensors-1"] = None  # type: ignore[assignment]
    assert await runtime.links.shard_status(release.fleet, "hall-sensors-1") is None, (
        "its certificate is another shard's"
    )
    async with channel(f"127.0.0.1:{port}") as link:
        with pytest.raises(grpc.aio.AioRpcError):
            await ShardStub(link).Status(StatusRequest(), timeout=2)
    await asyncio.gather(server.stop(0), runtime.close())


async def test_certificates_for_devices_contain_the_names_that_they_use(
    release: Release,
) -> None:
    def names() -> set[str]:
        return served_names(base64.b64decode(release.secret(f"{SHARD}-identity")["data"]["tls.crt"]))

    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    assert len(names()) == 1
    tls = replace(release.fleet.spec, access=DeviceAccess(open=True, tls=DeviceTls(names=("10.0.0.5", "hall.example"))))
    secured = replace(release.fleet, spec=tls)
    await release.identities.identify(secured, [SHARD])
    assert names() >= {"hall-sensors", f"hall-sensors.{release.namespace}.svc", "10.0.0.5", "hall.example"}
    version = release.secret(f"{SHARD}-identity")["metadata"]["resourceVersion"]
    following = release.another()
    await following.renew([release.namespace])
    await following.identify(secured, [SHARD])
    assert release.secret(f"{SHARD}-identity")["metadata"]["resourceVersion"] == version
    await release.identities.identify(release.fleet, [SHARD])
    assert len(names()) == 1


def lose(release: Release, name: str, how: str) -> Any:
    """Delete, empty or garble a Secret; return it as it was."""
    secret = release.secret(name)
    path = path_of({**secret, "apiVersion": "v1", "kind": "Secret"})
    if how == "deleted":
        release.cluster.request("DELETE", path)
    else:
        content = dict.fromkeys(secret["data"], "" if how == "emptied" else "eA==")
        release.cluster.merge(path, {"data": content})
    return secret


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbled"])
async def test_a_lost_authority_is_stored_again_and_all_still_trust_each_other(
    release: Release, tmp_path: Path, how: str
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    shard = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "shard"))
    lost = lose(release, "embereye-ca", how)
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    stored = release.secret("embereye-ca")
    assert stored["data"] == lost["data"]
    assert base64.b64decode(release.secret(f"{SHARD}-identity")["data"]["tls.crt"]) == shard.chain
    hub = read_certificate(release.files("embereye-hub-identity", tmp_path / "hub"))
    assert hub.trusted == shard.trusted
    owner = release.secret("embereye-hub-identity")["metadata"]["ownerReferences"][0]["uid"]
    assert owner == stored["metadata"]["uid"], "otherwise it is deleted with the former authority"
    following = release.another()
    await following.renew([release.namespace])
    assert following.credentials is not None
    assert following.credentials.current.trusted == shard.trusted


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbled"])
async def test_an_authority_lost_between_operators_is_replaced_with_overlap(
    release: Release, tmp_path: Path, clock: Callable[[timedelta], None], how: str
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])

    def shard(folder: str) -> Certificate:
        return read_certificate(release.files(f"{SHARD}-identity", tmp_path / folder))

    first, before = shard("first"), release.identities.credentials
    assert before is not None
    lose(release, "embereye-ca", how)
    following = release.another()
    await following.renew([release.namespace])
    await following.identify(release.fleet, [SHARD, "hall-sensors-1"])
    operator = following.credentials
    assert operator is not None
    assert operator.current.chain == before.current.chain, "the shards have not read the new authority yet"
    overlap = shard("overlap")
    assert (overlap.chain, overlap.key) == (first.chain, first.key)
    assert overlap.trusted.startswith(first.trusted)
    assert overlap.trusted.count(b"BEGIN") == 2
    new_shard = read_certificate(release.files("hall-sensors-1-identity", tmp_path / "new"))
    assert verify_certificate(overlap.trusted, new_shard.chain, new_shard.key)

    clock(timedelta(days=1, minutes=1))
    another = release.another()  # it knows from the Secret that both are trusted
    await another.renew([release.namespace])
    await another.identify(release.fleet, [SHARD])
    replaced = shard("replaced")
    assert replaced.chain != first.chain
    assert verify_certificate(overlap.trusted, replaced.chain, replaced.key)
    assert verify_certificate(replaced.trusted, overlap.chain, overlap.key)

    clock(timedelta(days=1))
    await another.renew([release.namespace])
    final = shard("final")
    assert final.trusted.count(b"BEGIN") == 1
    assert verify_certificate(final.trusted, replaced.chain, replaced.key)
    with pytest.raises(ValueError, match="do not belong together"):
        verify_certificate(final.trusted, first.chain, first.key)


async def test_a_lost_authority_is_no_longer_trusted_once_its_certificates_are_removed(
    release: Release, tmp_path: Path
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    first = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "first"))
    lose(release, "embereye-ca", "deleted")
    following = release.another()
    await following.renew([release.namespace])
    path = f"/api/v1/namespaces/{release.namespace}/secrets/embereye-ca"
    release.cluster.merge(path, {"data": {"inherited.crt": None}})
    await following.renew([release.namespace])
    await following.identify(release.fleet, [SHARD])
    latest = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "latest"))
    assert latest.trusted.count(b"BEGIN") == 1
    with pytest.raises(ValueError, match="do not belong together"):
        verify_certificate(latest.trusted, first.chain, first.key)


async def test_an_authority_in_another_namespace_is_never_inherited(release: Release, namespace: str) -> None:
    other = f"{namespace}-other"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    release.cluster.request("POST", "/api/v1/namespaces", body)
    forged, _ = Authority.create(utc_now()).to_pem()
    labels = {"app.kubernetes.io/managed-by": "embereye-operator"}
    annotations = {identities.ANNOTATION_RELEASE: f"{namespace}/embereye"}
    metadata = {"name": "forged", "namespace": other, "labels": labels, "annotations": annotations}
    data = {"ca.crt": base64.b64encode(forged).decode()}
    create(release.cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    await release.identities.renew([release.namespace, other])
    assert release.identities.credentials is not None
    assert release.identities.credentials.current.trusted.count(b"BEGIN") == 1


async def test_an_operator_without_the_right_to_its_secret_has_a_certificate(release: Release, tmp_path: Path) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "embereye-operator-identity"}}
    body["metadata"]["namespace"] = release.namespace
    create(release.cluster, body)  # it is somebody else's
    with pytest.raises(TakenError, match="embereye-operator-identity"):
        await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    shard = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "shard"))
    operator = release.identities.credentials
    assert operator is not None
    assert verify_certificate(shard.trusted, operator.current.chain, operator.current.key)


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbled"])
@pytest.mark.parametrize("name", ["embereye-hub-identity", f"{SHARD}-identity"])
async def test_a_lost_certificate_is_issued_again_at_the_next_check(
    release: Release, clock: Callable[[timedelta], None], tmp_path: Path, name: str, how: str
) -> None:
    await release.identities.renew([release.namespace])
    await release.identities.identify(release.fleet, [SHARD])
    lose(release, name, how)
    clock(timedelta(seconds=4))
    await release.identities.renew([release.namespace])
    assert release.identities.lost == ({(release.namespace, "sensors.hall")} if name.startswith(SHARD) else set())
    await release.identities.identify(release.fleet, [SHARD])
    assert read_certificate(release.files(name, tmp_path / "again"))


async def test_the_controller_makes_all_lost_secrets_again(release: Release) -> None:
    runtime = build_runtime(
        release.client,
        KubernetesOptions(hub="127.0.0.1:1", namespaces=[release.namespace], release=(release.namespace, "embereye")),
    )
    running = controller.Controller(runtime, SETTINGS)
    task = asyncio.create_task(running.run())
    names = ("embereye-ca", "embereye-hub-identity", f"{SHARD}-identity")

    async def wait_for_all() -> None:
        await eventually(lambda: all(release.secret(name) for name in names))

    try:
        await wait_for_all()
        for name in names:
            lose(release, name, "deleted")
            await wait_for_all()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# An authority of cert-manager: a Secret in its format plays its part.


def issuer_secret(release: Release, created: datetime) -> Authority:
    """Put an authority that was created at this time into the issuer's Secret."""
    root, key = Authority.create(created)._signers[0], ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "embereye-ca")])  # always the same
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(created)
        .not_valid_after(created + timedelta(days=90))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(root.key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files = {"tls.crt": signed.public_bytes(Encoding.PEM), "tls.key": pem}
    body = {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "issued", "namespace": release.namespace},
        "data": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }  # fmt: skip
    path = f"{path_of(body)}?fieldManager=cert-manager&force=true"
    release.cluster.request("PATCH", path, body, "application/apply-patch+yaml")
    return Authority.from_issuer(files["tls.crt"], pem)


def by_issuer(release: Release) -> Identities:
    return Identities(release.client, name="embereye", namespace=release.namespace, fence=lambda: None, issued="issued")


async def test_an_issuers_authority_issues_and_both_sides_trust_only_it(release: Release, tmp_path: Path) -> None:
    identities = by_issuer(release)
    await identities.renew([release.namespace])
    assert "issued has no authority: it does not exist" in identities.trouble
    with pytest.raises(UnavailableError, match="issued has no authority"):
        await identities.identify(release.fleet, [SHARD])
    authority = issuer_secret(release, utc_now())
    await identities.renew([release.namespace])
    assert identities.trouble == ""
    await identities.identify(release.fleet, [SHARD])
    assert read_certificate(release.files(f"{SHARD}-identity", tmp_path / "shard")).trusted == authority.trusted
    assert (tmp_path / "shard" / "tls.crt").read_bytes().endswith(authority.trusted)
    shard = Credentials(tmp_path / "shard")
    server = GrpcServer([], control=True, credentials=shard)
    port = server.listen("127.0.0.1:0")
    await server.start()
    await server.set_serving(True)
    assert identities.credentials is not None
    async with identities.credentials.channel(f"127.0.0.1:{port}", shard.identity.server_name, []) as link:
        answer = await health_pb2_grpc.HealthStub(link).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await server.stop(0)


async def test_an_issuers_new_authority_is_trusted_for_a_day_before_it_signs(
    release: Release, clock: Callable[[timedelta], None], tmp_path: Path
) -> None:
    first = issuer_secret(release, utc_now() - timedelta(days=2))
    identities = by_issuer(release)
    await identities.renew([release.namespace])
    second = issuer_secret(release, utc_now())
    await by_issuer(release).renew([release.namespace])  # another leader
    identities = by_issuer(release)
    await identities.renew([release.namespace])
    await identities.identify(release.fleet, [SHARD])
    shown = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "shard"))
    assert shown.trusted == first.trusted + second.trusted
    assert shown.chain.endswith(first.trusted)
    clock(timedelta(days=1, minutes=1))
    await identities.renew([release.namespace])
    await identities.identify(release.fleet, [SHARD])
    clock(timedelta(days=5))
    await identities.renew([release.namespace])
    await identities.identify(release.fleet, [SHARD])
    shown = read_certificate(release.files(f"{SHARD}-identity", tmp_path / "shard"))
    assert shown.chain.endswith(second.trusted)


async def test_a_release_migrates_to_an_issuer_and_stops_trusting_its_authority(
    release: Release, clock: Callable[[timedelta], None]
) -> None:
    await release.another().renew([release.namespace])
    own_authority = release.secret("embereye-ca")["data"]["ca.crt"]
    issued = issuer_secret(release, utc_now())
    await by_issuer(release).renew([release.namespace])
    both = base64.b64decode(release.secret("embereye-ca")["data"]["ca.crt"])
    assert both == base64.b64decode(own_authority) + issued.trusted
    clock(timedelta(days=9))
    await by_issuer(release).renew([release.namespace])
    assert base64.b64decode(release.secret("embereye-ca")["data"]["ca.crt"]) == issued.trusted


async def test_an_issuers_invalid_secret_changes_nothing(release: Release) -> None:
    authority = issuer_secret(release, utc_now())
    identities = by_issuer(release)
    await identities.renew([release.namespace])
    leaf = authority.issue(Identity(Role.HUB, "x", "y"), utc_now())
    for files in (
        {"tls.crt": leaf.certificate, "tls.key": leaf.key}, {"tls.crt": b"x"}, {"tls.crt": b"", "tls.key": b""},
    ):  # fmt: skip
        with pytest.raises((KeyError, ValueError)):
            Authority.from_issuer(files["tls.crt"], files["tls.key"])
    release.cluster.request("DELETE", f"/api/v1/namespaces/{release.namespace}/secrets/issued")
    await identities.renew([release.namespace])
    assert identities.trouble == ""


@pytest.mark.parametrize("limit", [600.0, 0.0])
async def test_fleets_are_reconciled_once_the_operator_has_a_certificate_or_after_a_while(
    release: Release, monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    """Without its certificate a new leader would report all shards unreachable, and all devices dark."""
    monkeypatch.setattr(controller, "IDENTITY_LIMIT", limit)
    runtime = build_runtime(
        release.client,
        KubernetesOptions(hub="127.0.0.1:1", namespaces=[release.namespace], release=(release.namespace, "embereye")),
    )
    begun, may_go_on, keep = asyncio.Event(), asyncio.Event(), runtime.links.renew_identities

    async def slowly() -> None:
        begun.set()
        await may_go_on.wait()
        await keep()

    monkeypatch.setattr(runtime.links, "renew_identities", slowly)
    running = controller.Controller(runtime, SETTINGS)
    task = asyncio.create_task(running.run())

    async def looked_at() -> None:
        while not any(record.passes for record in running.records.values()):
            await asyncio.sleep(0.05)

    try:
        await asyncio.wait_for(begun.wait(), 60)
        if limit:
            await asyncio.sleep(0.5)
            assert not running.records
            may_go_on.set()
        await asyncio.wait_for(looked_at(), 60)
        assert bool(runtime.links.identities and runtime.links.identities.credentials) == bool(limit)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runtime.close()
