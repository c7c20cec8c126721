"""Certificates in a cluster: an authority in a Secret of the release, and one Secret for each hub and shard.

The leader issues and renews them; pods mount them as files, and read them again when they change.

`renew` runs every few seconds: it reads or creates the authority, writes the operator's and the hubs' certificates, and
renews all due ones. `identify` is called by each pass, for the shards of its fleet. Annotations on a Secret have its
expiry and a hash of its authorities, so a new leader knows the due ones without issuing all again. An old authority
stays trusted while a new one is introduced, so every process can still verify all others. The operator's own
certificate is in a Secret, too: if the authority is lost while no operator runs, the next one proves itself by it. It
takes the lost authority's certificates from the Secrets, and replaces the others' only once all trust the new one.
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

from embereye.process.condition import Condition
from embereye.process.identity.authority import Authority, expiry, is_due, is_due_by, utc_now
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, Role
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.names import LABEL_FLEET, LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY, identity_name
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.decide.manifests.names import served_names
from embereye_operator.errors import RefusedError, TakenError, UnavailableError
from embereye_operator.runtime.kubernetes.client.answers import find, list_objects, tolerating
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES, CHILDREN, SECRETS

logger = logging.getLogger(__name__)
ANNOTATION_EXPIRES = "embereye.dev/expires"  # on a Secret with a certificate: its expiry
ANNOTATION_TRUSTS = "embereye.dev/trusts"  # a hash of the authorities in it
ANNOTATION_NAMES = "embereye.dev/names"  # host names in it, which other clients use
ANNOTATION_RELEASE = "embereye.dev/release"  # the release that issued it, NAMESPACE/NAME
RELIST = timedelta(seconds=3)  # shortest interval between lists, which find deleted certificates
RELIST_PER_SECRET = timedelta(seconds=0.05)  # added for each known certificate
FILES = ("ca.crt", "tls.crt", "tls.key")  # in each Secret with a certificate
INHERITED = "inherited.crt"  # in the authority's Secret: certificates of a lost authority
RETAINED = "-retained"  # ends the hash of authorities in Secrets whose certificates wait for their replacement


@dataclass(frozen=True)
class KnownSecret:
    """The relevant content of a Secret with a certificate."""

    identity: Identity
    fleet: str  # label
    expires: datetime
    trusts: str  # hash of its authorities
    names: tuple[str, ...] = ()  # host names in it
    owner: str = ""  # uid of its owner


class Identities:
    """The release's authority and its certificates. Call `renew` first, and then every few seconds."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        name: str,
        namespace: str,
        fence: Callable[[], None],
        issued: str = "",
        hub_names: tuple[str, ...] = (),
        hubs: Sequence[NamedHub] = (),
    ) -> None:
        """Issue certificates for the release `name` in `namespace`; `fence` raises while this operator must not write.

        `issued` is a Secret of type kubernetes.io/tls with an authority that, for example, cert-manager creates and
        renews; "": the operator does. `hub_names` are host names that people use for the hub; `hubs` are the additional
        hubs.
        """
        self._release_hubs = {f"{name}-hub": hub_names, **{hub.process: hub.names for hub in hubs}}
        self._process = f"{name}-operator"  # the operator's Deployment
        self._operator_owner: Manifest | None = None  # of the operator's Secret; {}: it has none, None: not read yet
        self._client = client
        self._name = name
        self._namespace = namespace
        self._release = f"{namespace}/{name}"
        self._fence = fence
        self._issued = issued
        self._authority: Authority | None = None
        self._version = ""  # of the Secret with the authority
        self._known: dict[tuple[str, str], KnownSecret] = {}  # by namespace and name of the Secret
        self._listed: datetime | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="embereye-identity-")
        self.credentials: Credentials | None = None  # the operator's own
        self.lost: set[tuple[str, str]] = set()  # namespace and label of fleets with deleted certificates
        self._failing = Condition(logger)  # no certificate can be issued
        self._failing.fail("no certificate has been issued yet")

    @property
    def trouble(self) -> str:
        """The reason why no certificate can be issued; "" if one can."""
        return self._failing.why

    async def renew(self, namespaces: Collection[str]) -> None:
        """Create or renew the authority, and renew all due certificates in `namespaces`.

        A deleted authority is stored again, so every process still trusts all others. The fleets of deleted
        certificates are added to `lost`: only `identify` can create these.

        ApiError if the server fails. UnavailableError or RefusedError if one certificate cannot be written, for example
        in a forbidden namespace; the others are written all the same.
        """
        self._fence()
        failed: list[Exception] = []
        try:
            await self._renew_authority()
            now, interval = utc_now(), RELIST + RELIST_PER_SECRET * len(self._known)
            if self._listed is None or not timedelta(0) <= now - self._listed < interval:
                await self._list(namespaces, failed)
                self._listed = now
            await self._renew_release(failed)
            for key, known in list(self._known.items()):
                if self._is_due(known, now):
                    with _collect_failures(failed):
                        await self._write(key, known.identity, known.fleet, {}, known.names)
        except ApiError as error:
            self._failing.fail(f"certificates cannot be renewed: {error.status.message}")
            raise
        except ValueError as error:  # no authority yet: existing certificates stay
            self._failing.fail(str(error), "certificates cannot be renewed: %s", error)
            return
        self._failing.clear()
        if failed:
            raise failed[0]

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """Issue a certificate for each of `shards`, and delete those of deleted shards.

        UnavailableError or RefusedError if one cannot be written; the others are written all the same. ApiError if the
        server is overloaded or fails.
        """
        failed: list[Exception] = []
        if self._authority is None:
            raise UnavailableError(f"no certificates for shards: {self.trouble}")
        label, now = fleet.names.label, utc_now()
        names = served_names(fleet, *fleet.names.services)
        wanted = {(fleet.namespace, identity_name(shard)): shard for shard in shards}
        for key, shard in wanted.items():
            identity = Identity(Role.SHARD, fleet.namespace, shard, fleet.key)
            known = self._known.get(key)
            # A Secret of a deleted fleet of the same name is deleted with that fleet.
            if (
                known is None
                or (known.identity, known.names, known.owner) != (identity, names, fleet.uid)
                or self._is_due(known, now)
            ):
                self._fence()
                with _collect_failures(failed):
                    await self._write(key, identity, label, fleet.names.metadata(key[1], shard), names)
        for key, known in list(self._known.items()):
            if key[0] == fleet.namespace and known.fleet == label and key not in wanted:
                self._fence()
                await self._delete(key)
        if failed:
            raise failed[0]

    def _is_due(self, known: KnownSecret, now: datetime) -> bool:
        return known.trusts != self._trusted_hash() or is_due_by(known.expires, now)

    def _trusted_hash(self) -> str:
        assert self._authority
        trusts = hashlib.sha256(self._authority.trusted).hexdigest()[:16]
        return trusts + RETAINED if self._authority.is_succeeding(utc_now()) else trusts

    def close(self) -> None:
        """Delete the operator's certificate files."""
        self._folder.cleanup()

    async def _renew_authority(self) -> None:
        """Read the stored authority, and renew it if it is due.

        If it is missing or unreadable, store the one in use again. Without one, create it, and continue to trust what
        the release's processes trust.
        """
        name = f"{self._name}-ca"
        stored = await find(self._client, SECRETS, name, self._namespace)
        version = stored["metadata"]["resourceVersion"] if stored is not None else ""
        current = self._authority if stored is not None and version == self._version else self._load(name, stored)
        lost = current is None and self._authority is not None
        current = current or self._authority or Authority([])
        if self._issued:
            renewed = await self._adopt(current)
        elif current:
            renewed = current.renewed(utc_now())
        else:
            renewed = Authority.succeed(utc_now(), await self._remaining_trust())
        if renewed is not current or lost:
            certificates, keys = renewed.to_pem()
            body = self._body(self._namespace, name, {"ca.crt": certificates, "ca.key": keys})
            if renewed.inherited or stored is not None:
                body["data"][INHERITED] = base64.b64encode(renewed.inherited).decode() or None
            if stored is None:
                stored = await self._client.create(SECRETS.from_dict(body))
            else:
                # Refused if somebody has written it meanwhile: there must be only one authority.
                body["metadata"]["resourceVersion"] = version
                # Helm's label stays: without it, Helm refuses to install the release again over this Secret.
                del body["metadata"]["labels"]
                stored = await self._patch(name, self._namespace, body)
            version = stored["metadata"]["resourceVersion"]
            change = "lost, and is stored again" if lost else "renewed" if current.trusted else "created"
            if renewed.inherited and not current:
                change = "lost, and is replaced by a new one. Its certificates are trusted for two more days"
            expected = change in {"renewed", "created"}
            logger.log(logging.INFO if expected else logging.WARNING, "the certificate authority was %s", change)
        self._authority, self._version = renewed, version
        self._owner = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": stored["metadata"]["uid"]}

    @staticmethod
    def _load(name: str, stored: Any) -> Authority | None:
        """Return the authority in the Secret `name`; None if the Secret is missing, empty or unreadable."""
        if stored is None or not (data := _decoded(stored)):
            return None
        try:
            return Authority.load(data["ca.crt"], data["ca.key"], data.get(INHERITED, b"")) or None
        except (KeyError, ValueError) as error:
            logger.warning("Secret %s is unreadable: %s", name, error)
            return None

    async def _remaining_trust(self) -> bytes:
        """Return the certificates of a lost authority that the release's processes still trust; PEM.

        Only Secrets in the release's namespace count: people elsewhere could add any authority.
        """
        bundles = list[bytes]()
        labels: Any = {LABEL_MANAGED_BY: MANAGED_BY}
        async for stored in self._client.list(SECRETS, namespace=self._namespace, labels=labels, chunk_size=50):
            if (stored["metadata"].get("annotations") or {}).get(ANNOTATION_RELEASE) == self._release:
                trusted = _decoded(stored).get("ca.crt", b"").strip()
                with contextlib.suppress(ValueError):  # somebody changed it
                    if trusted not in bundles and expiry(trusted):
                        bundles.append(trusted)
        return b"\n".join(bundles)

    async def _adopt(self, current: Authority) -> Authority:
        """Return `current` with the issuer's latest authority added; ValueError if neither exists."""
        try:
            stored = await find(self._client, SECRETS, self._issued, self._namespace)
            if stored is None:
                raise ValueError("it does not exist. Check that its Certificate is ready")
            data = _decoded(stored)
            successor = Authority.from_issuer(data["tls.crt"], data["tls.key"])
        except (KeyError, ValueError) as error:
            adopted, trouble = current, f"Secret {self._issued} has no authority: {error}"
        else:
            adopted, trouble = (
                current.adopted(successor, utc_now()),
                f"the authority in Secret {self._issued} has expired",
            )
        if not adopted:
            raise ValueError(trouble)
        return adopted

    async def _renew_release(self, failed: list[Exception]) -> None:
        """Renew the operator's and the hubs' certificates."""
        now = utc_now()
        await self._renew_operator(now, failed)
        for process, names in self._release_hubs.items():
            with _collect_failures(failed):
                await self._renew_one(process, Identity(Role.HUB, self._namespace, process), names, self._owner, now)

    async def _renew_operator(self, now: datetime, failed: list[Exception]) -> None:
        """Renew the operator's certificate and read it from its Secret; without that Secret, it has one in memory."""
        assert self._authority
        identity, files = Identity(Role.OPERATOR, self._namespace, self._name), dict[str, bytes]()
        try:
            stored = await self._renew_one(self._process, identity, (), await self._deployment(), now)
            files = {file: content for file, content in _decoded(stored).items() if file in FILES}
        except (ApiError, UnavailableError, RefusedError) as error:
            failed.append(error)
            previous = self.credentials.current if self.credentials else None
            wanted = self._authority.trusted
            if previous is None or is_due(previous.chain, previous.trusted, now, wanted=wanted):
                files = self._authority.issue(identity, now).files
        for file, content in files.items():
            (Path(self._folder.name) / file).write_bytes(content)
        if self.credentials is None:
            self.credentials = Credentials(Path(self._folder.name))
        self.credentials.reload()

    async def _deployment(self) -> Manifest | None:
        """Return a reference to the operator's Deployment, with which its Secret is deleted; None: it has none."""
        if self._operator_owner is None:
            owner: Manifest = {}
            kind, fields = CHILDREN["Deployment"], {"metadata.name": self._process}
            with tolerating(403):
                for stored in await list_objects(self._client, kind, self._namespace, fields=fields):
                    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": self._process}
                    owner["uid"] = stored["metadata"]["uid"]
            self._operator_owner = owner
        return self._operator_owner or None

    async def _renew_one(
        self, process: str, identity: Identity, names: tuple[str, ...], owner: Manifest | None, now: datetime
    ) -> Any:
        """Renew the certificate of a process of the release; returns the stored Secret, which `owner` owns."""
        key = self._namespace, identity_name(process)
        stored = await find(self._client, SECRETS, key[1], self._namespace)
        known = _read_secret(stored, identity).get(key) if stored is not None else None
        if known is None:
            self._known.pop(key, None)
        else:
            self._known[key] = known
        wanted = identity, names, owner["uid"] if owner else ""
        if known is None or (known.identity, known.names, known.owner) != wanted or self._is_due(known, now):
            metadata = self._body(*key, {})["metadata"] | {"ownerReferences": [owner] if owner else []}
            stored = await self._write(key, identity, "", metadata, names)
        return stored

    @staticmethod
    def _body(namespace: str, name: str, data: Mapping[str, bytes]) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }

    async def _patch(self, name: str, namespace: str, body: Manifest) -> Any:
        return await self._client.patch(
            SECRETS, name, body, namespace=namespace, patch_type=PatchType.MERGE, field_manager=MANAGED_BY
        )

    async def _write(
        self, key: tuple[str, str], identity: Identity, fleet: str, metadata: Manifest, names: tuple[str, ...] = ()
    ) -> Any:
        """Issue and store a certificate, and return its Secret; `metadata` is for a Secret that does not exist yet.

        Until all processes trust the successor of a lost authority, an existing certificate stays in use, and only its
        trust is extended.
        """
        assert self._authority
        now, known = utc_now(), self._known.get(key)
        is_retained = (
            known is not None
            and self._authority.is_succeeding(now)
            and (known.identity, known.names) == (identity, names)
            and not is_due_by(known.expires, now)
        )
        if known is not None and is_retained:
            files, expires = {"ca.crt": self._authority.trusted}, known.expires
        else:
            try:
                issued = self._authority.issue(identity, now, names=names)
            except ValueError as error:
                raise RefusedError(f"no certificate is issued for {identity}: {error}") from error
            files, expires = issued.files, expiry(issued.certificate)
        body = self._body(*key, files)
        body["metadata"] |= {**metadata, "annotations": self._annotations(expires, names)}
        try:
            stored = await self._patch_known(key, body) if key in self._known else None
            if stored is None and is_retained:
                return await self._write(key, identity, fleet, metadata, names)
            if stored is None:
                stored = await self._create(key, body)
        except ApiError as error:
            if error.response.status_code >= 429:
                raise  # the server fails or is overloaded: the pass fails, and waits as requested
            sentence = f"Secret {key[1]} with the certificate of {identity} cannot be written: {error.status.message}"
            raise (RefusedError if error.status.code == 403 else UnavailableError)(sentence) from error
        owner = _owner(stored["metadata"])
        self._known[key] = KnownSecret(identity, fleet, expires, self._trusted_hash(), names, owner)
        done = "extended by the new authority" if is_retained else "issued"
        logger.info("certificate of %s %s, Secret %s, version %s", identity, done, key[1],
                    stored["metadata"]["resourceVersion"])  # fmt: skip
        return stored

    async def _patch_known(self, key: tuple[str, str], body: Manifest) -> Any:
        """Patch a known Secret and return it; None if it was deleted, after forgetting it."""
        try:
            return await self._patch(key[1], key[0], body)
        except ApiError as error:
            if error.status.code != 404:
                raise
            del self._known[key]
            if "ownerReferences" not in body["metadata"]:
                raise  # a renewal without an owner: `identify` creates it again
            return None

    async def _create(self, key: tuple[str, str], body: Manifest) -> Any:
        with tolerating(409):
            return await self._client.create(SECRETS.from_dict({**body, "type": "kubernetes.io/tls"}))
        labels: Mapping[str, str] = {}
        # A list, because it needs no additional right.
        async for stored in self._client.list(SECRETS, namespace=key[0], fields={"metadata.name": key[1]}):
            labels = stored["metadata"].get("labels") or {}
        wanted = body["metadata"]["labels"]
        if any(labels.get(name) != wanted.get(name) for name in (LABEL_MANAGED_BY, LABEL_FLEET, LABEL_SHARD)):
            raise TakenError(
                f"Secret {key[1]} belongs to somebody else, but a shard's certificate needs this name: rename it"
            )
        return await self._patch(key[1], key[0], body)

    async def _delete(self, key: tuple[str, str]) -> None:
        self._known.pop(key, None)
        try:
            await self._client.delete(SECRETS, key[1], namespace=key[0])
        except ApiError as error:
            if error.status.code != 404:
                logger.warning("cannot delete Secret %s of a deleted shard: %s", key[1], error.status.message)

    def _annotations(self, expires: datetime, names: Sequence[str]) -> dict[str, str | None]:
        names_text = ",".join(names) or None  # a patch removes the annotation
        return {
            ANNOTATION_EXPIRES: expires.isoformat(),
            ANNOTATION_TRUSTS: self._trusted_hash(),
            ANNOTATION_NAMES: names_text,
            ANNOTATION_RELEASE: self._release,
        }

    async def _list(self, namespaces: Collection[str], failed: list[Exception]) -> None:
        """List the existing certificates of shards, so that a new leader does not issue all of them again.

        Those of another release are left out, because that release renews them. Known Secrets of a forbidden namespace,
        for example a deleted one, stay known.
        """
        before, listed_secrets = dict(self._known), dict[tuple[str, str], KnownSecret]()
        labels: Any = {LABEL_MANAGED_BY: MANAGED_BY}
        for namespace in namespaces:
            listed = self._client.list(SECRETS, namespace=namespace, labels=labels, chunk_size=50)
            try:
                async for stored in listed:
                    shard_labels = stored["metadata"].get("labels") or {}
                    kind, _, name = shard_labels.get(LABEL_FLEET, "").partition(".")
                    if name and (shard := shard_labels.get(LABEL_SHARD)) and self._is_ours(stored["metadata"]):
                        place = stored["metadata"]["namespace"]
                        identity = Identity(Role.SHARD, place, shard, f"{place}/{kind}/{name}")
                        listed_secrets |= _read_secret(stored, identity)
            except ApiError as error:
                if error.status.code not in {403, 404}:
                    raise
                failed.append(error)
                listed_secrets |= {key: known for key, known in before.items() if namespace in {key[0], ALL_NAMESPACES}}
        self.lost |= {
            (key[0], known.fleet)
            for key, known in before.items()
            if known.fleet and key not in listed_secrets and self._known.get(key) is known
        }
        # Certificates issued by passes meanwhile may be newer than the listed ones.
        self._known = listed_secrets | {
            key: known for key, known in self._known.items() if before.get(key) is not known
        }

    def _is_ours(self, metadata: Mapping[str, Any]) -> bool:
        """True if this release issued the certificate; v0.1.0 recorded only the authority."""
        annotations = metadata.get("annotations") or {}
        if release := annotations.get(ANNOTATION_RELEASE):
            return bool(release == self._release)
        return bool(annotations.get(ANNOTATION_TRUSTS) == self._trusted_hash())


@contextlib.contextmanager
def _collect_failures(failed: list[Exception]) -> Iterator[None]:
    """Append errors of one certificate to `failed`, and continue with the others."""
    try:
        yield
    except (UnavailableError, RefusedError) as error:
        failed.append(error)


def _read_secret(stored: Any, identity: Identity) -> dict[tuple[str, str], KnownSecret]:
    """Read a Secret's annotations; returns it by namespace and name, or nothing if it is incomplete."""
    metadata = stored["metadata"]
    annotations = metadata.get("annotations") or {}
    try:
        files = _decoded(stored)
        expires = datetime.fromisoformat(annotations.get(ANNOTATION_EXPIRES, ""))
        if not all(files.get(file) for file in FILES) or expiry(files["tls.crt"]) != expires:
            return {}  # somebody emptied or changed it
    except ValueError:
        return {}
    fleet = (metadata.get("labels") or {}).get(LABEL_FLEET, "")
    names = tuple(filter(None, annotations.get(ANNOTATION_NAMES, "").split(",")))
    trusts = annotations.get(ANNOTATION_TRUSTS, "")
    known = KnownSecret(identity, fleet, expires, trusts, names, _owner(metadata))
    return {(metadata["namespace"], metadata["name"]): known}


def _owner(metadata: Mapping[str, Any]) -> str:
    return str(next((owner["uid"] for owner in metadata.get("ownerReferences") or ()), ""))


def _decoded(stored: Any) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (stored.get("data") or {}).items()}
