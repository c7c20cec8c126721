"""Certificates of a cluster: the authority in a Secret of the release, one Secret for the hub and for each shard.

Whoever leads issues and renews them; pods get them as mounted files, which they read again when they change.
"""

import base64
import contextlib
import hashlib
import logging
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye.process.identity.authority import LIFE, Authority, Issued, due_by, expiry, utc_now
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, Role
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.decide.manifests.names import (
    LABEL_FLEET,
    LABEL_MANAGED_BY,
    LABEL_SHARD,
    MANAGED_BY,
    build_metadata,
    fleet_label,
    identity_name,
    served_names,
    service_names,
)
from embereye_operator.errors import RefusedError, TakenError, UnavailableError
from embereye_operator.runtime.kubernetes.client.resources import SECRETS
from embereye_operator.runtime.kubernetes.nodes import EVERYWHERE

logger = logging.getLogger(__name__)
ANNOTATION_EXPIRES = "embereye.dev/expires"  # of a Secret with a certificate
ANNOTATION_TRUSTS = "embereye.dev/trusts"  # a hash of the authorities in it
ANNOTATION_NAMES = "embereye.dev/names"  # by which others than our own processes dial whose it is
ANNOTATION_RELEASE = "embereye.dev/release"  # whose authority issued it, NAMESPACE/NAME
RELIST = timedelta(minutes=2)  # after which it is looked whether somebody has removed a certificate


@dataclass(frozen=True)
class Kept:
    """What is known of a Secret with a certificate."""

    identity: Identity
    fleet: str  # label
    expires: datetime
    trusts: str
    names: tuple[str, ...] = ()  # by which others than our own processes dial it
    owner: str = ""  # uid of what it goes with


class Identities:
    """The release's authority and what it has issued. `keep` has to be called first, and every minute or so."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        name: str,
        namespace: str,
        fence: Callable[[], None],
        life: timedelta = LIFE,
        issued: str = "",
        hub_names: tuple[str, ...] = (),
        hubs: Sequence[NamedHub] = (),
    ) -> None:
        """`name` is the release's, `namespace` where it is; `fence` raises where this operator may not write.

        `issued` is a Secret, of the type kubernetes.io/tls, with an authority that somebody else makes and renews, as
        cert-manager does; "": we do. `hub_names` are those by which people dial the hub; `hubs` are those beside it.
        """
        self._release_hubs = {f"{name}-hub": hub_names, **{hub.process: hub.names for hub in hubs}}
        self._client = client
        self._name = name
        self._namespace = namespace
        self._release = f"{namespace}/{name}"
        self._fence = fence
        self._life = life
        self._issued = issued
        self._authority: Authority | None = None
        self._version = ""  # of the Secret with the authority
        self._known: dict[tuple[str, str], Kept] = {}  # by namespace and name of the Secret
        self._listed: datetime | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="embereye-identity-")
        self.credentials: Credentials | None = None  # the operator's own
        self.trouble = "no certificate has been issued yet"  # why nothing can be issued; empty: it can

    async def keep(self, namespaces: Collection[str]) -> None:
        """Make or renew the authority, and renew what is due in `namespaces`.

        ApiError; UnavailableError, RefusedError where a certificate cannot be written, and the others are, as where
        a namespace may not be seen.
        """
        self._fence()
        failed: list[Exception] = []
        try:
            await self._keep_authority()
            now = utc_now()
            if self._listed is None or not timedelta(0) <= now - self._listed < RELIST:
                await self._list(namespaces, failed)
                self._listed = None if failed else now
            await self._keep_release(failed)
            for key, kept in list(self._known.items()):
                if self._due(kept, now):
                    with _noting(failed):
                        await self._write(key, kept.identity, kept.fleet, {}, kept.names)
        except ApiError as error:
            self.trouble = f"certificates cannot be kept: {error.status.message}"
            raise
        except ValueError as error:  # nothing to issue with yet: what there is stays
            self.trouble = str(error)
            logger.warning("certificates cannot be kept: %s", error)
            return
        self.trouble = ""
        if failed:
            raise failed[0]

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """Give each of `shards` a certificate that it can start with, and take away those of shards that are gone.

        UnavailableError, RefusedError where one cannot be written, and the others are; ApiError where the server is
        overloaded or fails.
        """
        failed: list[Exception] = []
        if self._authority is None:
            raise UnavailableError(f"shards cannot prove who they are: {self.trouble}")
        label, now = fleet_label(fleet), utc_now()
        names = served_names(fleet, *service_names(fleet))
        wanted = {(fleet.namespace, identity_name(shard)): shard for shard in shards}
        for key, shard in wanted.items():
            identity = Identity(Role.SHARD, fleet.namespace, shard, fleet.key)
            kept = self._known.get(key)
            # That of a fleet of the same name before goes with it, now or in a moment.
            if (
                kept is None
                or (kept.identity, kept.names, kept.owner) != (identity, names, fleet.uid)
                or self._due(kept, now)
            ):
                self._fence()
                with _noting(failed):
                    await self._write(key, identity, label, build_metadata(fleet, key[1], shard), names)
        for key, kept in list(self._known.items()):
            if key[0] == fleet.namespace and kept.fleet == label and key not in wanted:
                self._fence()
                await self._delete(key)
        if failed:
            raise failed[0]

    def _due(self, kept: Kept, now: datetime) -> bool:
        return kept.trusts != self._trusts() or due_by(kept.expires, now, self._life)

    def _trusts(self) -> str:
        assert self._authority
        return hashlib.sha256(self._authority.trusted).hexdigest()[:16]

    def close(self) -> None:
        """Remove the operator's own certificate."""
        self._folder.cleanup()

    # --- the release's own ---

    async def _keep_authority(self) -> None:
        """The authority as it is stored; made where there is none, renewed where it is due."""
        name = f"{self._name}-ca"
        stored = await self._read(name)
        kept, version = Authority([]), ""
        if stored is not None:
            version = stored["metadata"]["resourceVersion"]
            if self._authority is not None and version == self._version:
                kept = self._authority
            elif data := _decoded(stored):
                try:
                    kept = Authority.load(data["ca.crt"], data["ca.key"])
                except (KeyError, ValueError) as error:
                    logger.warning("Secret %s is made anew, and so is every certificate: %s", name, error)
        renewed = await self._adopt(kept) if self._issued else kept.renewed(utc_now())
        if renewed is not kept:
            certificates, keys = renewed.to_pem()
            body = self._body(self._namespace, name, {"ca.crt": certificates, "ca.key": keys})
            if stored is None:
                stored = await self._client.create(SECRETS.from_dict(body))
            else:
                # Refused where somebody has written it meanwhile: there must be one authority.
                body["metadata"]["resourceVersion"] = version
                stored = await self._patch(name, self._namespace, body)
            version = stored["metadata"]["resourceVersion"]
            logger.info("the certificate authority was %s", "renewed" if kept.trusted else "made")
        self._authority, self._version = renewed, version
        self._owner = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": stored["metadata"]["uid"]}

    async def _adopt(self, kept: Authority) -> Authority:
        """`kept` with what the issuer made last; ValueError where there is neither."""
        try:
            stored = await self._read(self._issued)
            if stored is None:
                raise ValueError("it is not there: does its Certificate become ready?")
            data = _decoded(stored)
            successor = Authority.of_issuer(data["tls.crt"], data["tls.key"])
        except (KeyError, ValueError) as error:
            adopted, trouble = kept, f"Secret {self._issued} has no authority: {error}"
        else:
            adopted, trouble = kept.adopted(successor, utc_now()), f"the authority in Secret {self._issued} is over"
        if not adopted:
            raise ValueError(trouble)
        return adopted

    async def _keep_release(self, failed: list[Exception]) -> None:
        """The hubs' certificates, and the operator's own."""
        assert self._authority
        now = utc_now()
        operator = Identity(Role.OPERATOR, self._namespace, self._name)
        folder = Path(self._folder.name)
        if self.credentials is None or self._due(self._own(operator), now):
            for file, content in self._authority.issue(operator, now, self._life).files.items():
                (folder / file).write_bytes(content)
            if self.credentials is None:
                self.credentials = Credentials(folder)
            self.credentials.reload()
        for process, names in self._release_hubs.items():
            with _noting(failed):
                await self._keep_hub(Identity(Role.HUB, self._namespace, process), names, now)

    async def _keep_hub(self, hub: Identity, names: tuple[str, ...], now: datetime) -> None:
        name = f"{hub.name}-identity"
        key = self._namespace, name
        if key not in self._known and (stored := await self._read(name)) is not None:
            self._known |= _read_kept(stored, hub)
        kept = self._known.get(key)
        if kept is None or (kept.identity, kept.names) != (hub, names) or self._due(kept, now):
            metadata = self._body(self._namespace, name, {})["metadata"] | {"ownerReferences": [self._owner]}
            await self._write(key, hub, "", metadata, names)

    def _own(self, operator: Identity) -> Kept:
        assert self.credentials
        current = self.credentials.current
        trusts = hashlib.sha256(current.trusted).hexdigest()[:16]
        return Kept(operator, "", expiry(current.chain), trusts)

    # --- Secrets ---

    @staticmethod
    def _body(namespace: str, name: str, data: Mapping[str, bytes]) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }

    async def _read(self, name: str) -> Any:
        try:
            return await self._client.get(SECRETS, name, namespace=self._namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None

    async def _patch(self, name: str, namespace: str, body: Manifest) -> Any:
        return await self._client.patch(
            SECRETS, name, body, namespace=namespace, patch_type=PatchType.MERGE, field_manager=MANAGED_BY
        )

    async def _write(
        self, key: tuple[str, str], identity: Identity, fleet: str, metadata: Manifest, names: tuple[str, ...] = ()
    ) -> None:
        """Issue and store a certificate; `metadata` is that of a Secret that may have to be made."""
        assert self._authority
        try:
            issued = self._authority.issue(identity, utc_now(), self._life, names)
        except ValueError as error:
            raise RefusedError(f"no certificate is issued for {identity}: {error}") from error
        body = self._body(*key, issued.files)
        body["metadata"] |= {**metadata, "annotations": self._annotations(issued, names)}
        try:
            stored = await self._patch_known(key, body) if key in self._known else None
            if stored is None:
                stored = await self._create(key, body)
        except ApiError as error:
            if error.response.status_code >= 429:
                raise  # the server's own trouble: the pass fails, and waits as long as it is asked to
            sentence = f"Secret {key[1]} with the certificate of {identity} cannot be written: {error.status.message}"
            raise (RefusedError if error.status.code == 403 else UnavailableError)(sentence) from error
        owner = _owner(stored["metadata"])
        self._known[key] = Kept(identity, fleet, expiry(issued.certificate), self._trusts(), names, owner)
        logger.info("certificate of %s issued, Secret %s, version %s", identity, key[1],
                    stored["metadata"]["resourceVersion"])  # fmt: skip

    async def _patch_known(self, key: tuple[str, str], body: Manifest) -> Any:
        """The Secret as it is stored then; None where somebody has removed it, and what goes with what is known."""
        try:
            return await self._patch(key[1], key[0], body)
        except ApiError as error:
            if error.status.code != 404:
                raise
            del self._known[key]
            if "ownerReferences" not in body["metadata"]:
                raise  # renewed for nobody: made where it is asked for
            return None

    async def _create(self, key: tuple[str, str], body: Manifest) -> Any:
        try:
            return await self._client.create(SECRETS.from_dict({**body, "type": "kubernetes.io/tls"}))
        except ApiError as error:
            if error.status.code != 409:
                raise
        labels: Mapping[str, str] = {}
        # As a list, which needs no other right than the one to list.
        async for stored in self._client.list(SECRETS, namespace=key[0], fields={"metadata.name": key[1]}):
            labels = stored["metadata"].get("labels") or {}
        wanted = body["metadata"]["labels"]
        if any(labels.get(name) != wanted.get(name) for name in (LABEL_MANAGED_BY, LABEL_FLEET, LABEL_SHARD)):
            raise TakenError(f"Secret {key[1]} is somebody else's, and a shard's certificate goes there: rename it")
        return await self._patch(key[1], key[0], body)

    async def _delete(self, key: tuple[str, str]) -> None:
        self._known.pop(key, None)
        try:
            await self._client.delete(SECRETS, key[1], namespace=key[0])
        except ApiError as error:
            if error.status.code != 404:
                logger.warning("Secret %s of a shard that is gone cannot be deleted: %s", key[1], error.status.message)

    def _annotations(self, issued: Issued, names: Sequence[str]) -> dict[str, str | None]:
        expires = expiry(issued.certificate).isoformat()
        said = ",".join(names) or None  # which a patch removes
        return {
            ANNOTATION_EXPIRES: expires,
            ANNOTATION_TRUSTS: self._trusts(),
            ANNOTATION_NAMES: said,
            ANNOTATION_RELEASE: self._release,
        }

    async def _list(self, namespaces: Collection[str], failed: list[Exception]) -> None:
        """What there is of shards' certificates: a new leader does not issue all of them anew.

        Those of another release are left out: that one renews them, and its shards prove themselves to its hub. Of a
        namespace that may not be seen, one that was deleted for example, those that were known stay known.
        """
        before, found_there = dict(self._known), dict[tuple[str, str], Kept]()
        labels: Any = {LABEL_MANAGED_BY: MANAGED_BY}
        for namespace in namespaces:
            listed = self._client.list(SECRETS, namespace=namespace, labels=labels, chunk_size=50)
            try:
                async for stored in listed:
                    found = stored["metadata"].get("labels") or {}
                    kind, _, name = found.get(LABEL_FLEET, "").partition(".")
                    if name and (shard := found.get(LABEL_SHARD)) and self._is_ours(stored["metadata"]):
                        place = stored["metadata"]["namespace"]
                        identity = Identity(Role.SHARD, place, shard, f"{place}/{kind}/{name}")
                        found_there |= _read_kept(stored, identity)
            except ApiError as error:
                if error.status.code not in {403, 404}:
                    raise
                failed.append(error)
                found_there |= {key: kept for key, kept in before.items() if namespace in {key[0], EVERYWHERE}}
        # What passes have issued meanwhile may be newer than what was listed.
        self._known = found_there | {key: kept for key, kept in self._known.items() if before.get(key) is not kept}

    def _is_ours(self, metadata: Mapping[str, Any]) -> bool:
        """Whether this release issued the certificate; an earlier version did not say, but which authority it used."""
        annotations = metadata.get("annotations") or {}
        if release := annotations.get(ANNOTATION_RELEASE):
            return bool(release == self._release)
        return bool(annotations.get(ANNOTATION_TRUSTS) == self._trusts())


@contextlib.contextmanager
def _noting(failed: list[Exception]) -> Iterator[None]:
    """Go on with the other certificates where one cannot be written."""
    try:
        yield
    except (UnavailableError, RefusedError) as error:
        failed.append(error)


def _read_kept(stored: Any, identity: Identity) -> dict[tuple[str, str], Kept]:
    """What is known of a Secret by what it says itself, by its namespace and name; empty where it says nothing."""
    metadata = stored["metadata"]
    annotations = metadata.get("annotations") or {}
    try:
        expires = datetime.fromisoformat(annotations.get(ANNOTATION_EXPIRES, ""))
    except ValueError:
        return {}
    fleet = (metadata.get("labels") or {}).get(LABEL_FLEET, "")
    names = tuple(filter(None, annotations.get(ANNOTATION_NAMES, "").split(",")))
    trusts = annotations.get(ANNOTATION_TRUSTS, "")
    kept = Kept(identity, fleet, expires, trusts, names, _owner(metadata))
    return {(metadata["namespace"], metadata["name"]): kept}


def _owner(metadata: Mapping[str, Any]) -> str:
    return str(next((one["uid"] for one in metadata.get("ownerReferences") or ()), ""))


def _decoded(stored: Any) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (stored.get("data") or {}).items()}
