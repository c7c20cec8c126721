"""`kubectl embereye report`: write what a cluster knows about EmberEye to an archive without secrets.

Secrets are never read. Every URL in objects and logs is reduced to scheme, host and port. Environment variables,
options and settings with a name like password, token or key lose their values.

`kubectl embereye` calls `run`. Objects are listed kind by kind, then the logs of all containers, and each becomes a
file of the archive as soon as it is read. Objects and logs pass `without_secrets` first. Parts that cannot be read are
named in `missing.txt` and on standard error, and do not stop the rest.
"""

import argparse
import io
import json
import re
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx  # the HTTP client of lightkube
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.camera.sources.declared import redact
from embereye.process.files import system_errors
from embereye_cli.cluster.kubectl_options import target_of
from embereye_operator.api.kinds import added_kinds
from embereye_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.decide.manifests.config_map import placement_files
from embereye_operator.runtime.kubernetes.client.client import connected
from embereye_operator.runtime.kubernetes.client.resources import (
    ALL_NAMESPACES,
    CHILDREN,
    EVENTS,
    FLEETS,
    LEASES,
    NODES,
    OPTIONAL,
    PODS,
    custom,
)

OURS: dict[str, Any] = {"app.kubernetes.io/part-of": "embereye"}
LINES = 5000  # the newest lines of each container's log
# An apostrophe can be part of a password; elsewhere it ends a quotation.
URL = re.compile(r"""[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^\s"\\<>/?#]*@)?[^\s"'\\<>]*""")
SECRET_NAME = re.compile(r"pass|token|secret|key|credential|auth|header|dsn", re.IGNORECASE)
OPTION = re.compile(r"(?P<name>--?[a-zA-Z][\w-]*)(?P<value>=.*)?", re.DOTALL)
# Settings and headers: password=…, token: …, "secret": "…", Bearer ….
SETTING = re.compile(
    r"""\b(?P<name>(?:\w*(?:password|passwd|token|secret|api[_-]?key)\\*["']?\s*[=:]\s*|(?:authorization:\s*)?bearer\s+|authorization:\s*basic\s+)\\*["']?)"""
    r"""(?P<value>[^\s"'\\,;{}\[\]…]{4,})""",
    re.IGNORECASE,
)
READ_ERRORS = (
    httpx.HTTPStatusError,
    httpx.ReadTimeout,
    httpx.ReadError,
    httpx.RemoteProtocolError,
)  # ApiError is one of the first
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # a copy of the object, as text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")
    parser.add_argument(
        "--to", type=Path, default=None, metavar="FILE", help="default: embereye-report-TIME.tar.gz, here"
    )
    parser.add_argument("--lines", type=int, default=LINES, help="newest lines of each container's log (%(default)s)")


async def run(arguments: argparse.Namespace) -> int:
    """Write the archive. Objects that cannot be read are listed in it and on standard error."""
    began = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = arguments.to or Path(f"embereye-report-{began}.tar.gz")
    async with connected(target_of(arguments)) as client:
        namespace = ALL_NAMESPACES if arguments.all_namespaces else client.namespace
        with system_errors(f"{path} cannot be written"), tarfile.open(path, "w:gz") as archive:
            await _Report(client, archive, path.name.removesuffix(".tar.gz")).collect(namespace, arguments.lines)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB. Read it before you send it to anybody.")
    return 0


def concealed(document: Any) -> str:
    """An object as JSON, without secrets and bulk."""
    return without_secrets(json.dumps(_without_values(document), indent=1, sort_keys=True, ensure_ascii=False))


def without_secrets(text: str) -> str:
    """`text` with every URL reduced to scheme, host and port, and without the values of secret settings."""
    return SETTING.sub(r"\g<name>…", URL.sub(lambda match: redact(match[0]), text))


def _without_values(document: Any) -> Any:
    if isinstance(document, list):
        return [_without_values(entry) for entry in document]
    if not isinstance(document, dict):
        return document
    left_out = {"managedFields", "binaryData", APPLIED}
    unpacked = {"data": placement_files(document)} if "binaryData" in document else {}
    shown = {name: _without_values(value) for name, value in {**document, **unpacked}.items() if name not in left_out}
    if isinstance(shown.get("value"), str) and SECRET_NAME.search(str(shown.get("name", ""))):
        shown["value"] = "…"
    for name in ("command", "args"):
        if isinstance(shown.get(name), list):
            shown[name] = _without_options(shown[name])
    return shown


def _without_options(words: list[Any]) -> list[Any]:
    """A command's words without the values of secret options; the name of a file is not secret."""
    shown: list[Any] = []
    hide = False
    for word in words:
        option = OPTION.fullmatch(word) if isinstance(word, str) else None
        secret = option is not None and SECRET_NAME.search(option["name"]) and not option["name"].endswith("-file")
        if option is not None and secret and option["value"]:
            shown.append(f"{option['name']}=…")
        else:
            shown.append("…" if hide and option is None else word)
        hide = bool(secret and option is not None and not option["value"])
    return shown


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, ApiError):
        return str(error.status.message)
    return str(error) or type(error).__name__


@dataclass(eq=False)
class _Report:
    client: AsyncClient
    archive: tarfile.TarFile
    folder: str
    missing: list[str] = field(default_factory=list)

    async def collect(self, namespace: str, lines: int) -> None:
        """Collect all objects of `namespace` ("*": of all), and those of the release that are readable."""
        for name, kind in FLEETS.items():
            await self._objects(name, partial(self.client.list, kind, namespace=namespace))
        for added in added_kinds():
            kind = custom(added.resource, added.plural)
            await self._objects(added.resource, partial(self.client.list, kind, namespace=namespace), optional=True)
        labels: dict[str, Any] = {LABEL_MANAGED_BY: MANAGED_BY}
        for name, kind in CHILDREN.items():
            await self._objects(
                name,
                partial(self.client.list, kind, namespace=namespace, labels=labels),
                optional=name in OPTIONAL,
            )
        await self._objects("Event", lambda: self.client.list(EVENTS, namespace=namespace))
        await self._objects("Lease", lambda: self.client.list(LEASES, namespace=namespace))
        await self._objects("Node", lambda: self.client.list(NODES))
        pods = await self._objects("Pod", lambda: self.client.list(PODS, namespace=namespace, labels=OURS))
        for pod in pods:
            await self._logs(pod, lines)
        missing = [*self.missing, *([] if pods else [f"no pod of EmberEye is in namespace {namespace}"])]
        self._add("missing.txt", "".join(f"{line}\n" for line in missing) or "nothing\n")
        for line in missing:
            print(f"not in the report: {line}", file=sys.stderr)

    async def _objects(self, name: str, listed: Callable[[], Any], *, optional: bool = False) -> list[dict[str, Any]]:
        print(f"{name} … ", end="", file=sys.stderr, flush=True)
        try:
            objects = [dict(entry) async for entry in listed()]
        except READ_ERRORS as error:
            print("no", file=sys.stderr)
            unknown = isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 404
            if not (optional and unknown):  # the cluster does not have this kind
                self.missing.append(f"{name}: {_reason(error)}")
            return []
        print(len(objects), file=sys.stderr)
        self._add(f"objects/{name}.json", concealed(objects))
        return objects

    async def _logs(self, pod: dict[str, Any], lines: int) -> None:
        metadata = pod["metadata"]
        where = f"{metadata['namespace']}/{metadata['name']}"
        for container in pod["spec"]["containers"]:
            text: list[str] = []
            try:
                log: Any = self.client.log(
                    metadata["name"], namespace=metadata["namespace"], container=container["name"], tail_lines=lines,
                    timestamps=True,
                )  # fmt: skip
                async for line in log:
                    text.append(line)  # noqa: PERF401 -- lines before an error are part of the report
            except READ_ERRORS as error:
                self.missing.append(f"the log of {where} {container['name']}: {_reason(error)}")
            self._add(f"logs/{where}/{container['name']}.txt", without_secrets("".join(text)))

    def _add(self, name: str, text: str) -> None:
        data = text.encode()
        entry = tarfile.TarInfo(f"{self.folder}/{name}")
        entry.size, entry.mtime = len(data), int(time.time())
        self.archive.addfile(entry, io.BytesIO(data))
