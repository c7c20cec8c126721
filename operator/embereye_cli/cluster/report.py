"""`kubectl embereye report`: what a cluster says of EmberEye, in one archive that holds no secret.

Secrets are never read. Of every URL scheme, host and port alone are kept, in objects as well as in logs; of environment
variables, options and settings whose names speak of a password, a token or a key, the names.
"""

import argparse
import io
import json
import re
import sys
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.camera.sources.declared import redact
from embereye.process.lifecycle import UserError
from embereye_cli.cluster.kubectl_options import target_of
from embereye_operator.decide.manifests.config_map import placement_files
from embereye_operator.decide.manifests.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.runtime.kubernetes.client.client import connected
from embereye_operator.runtime.kubernetes.client.resources import (
    CHILDREN,
    EVENTS,
    FLEETS,
    LEASES,
    NODES,
    OPTIONAL,
    PODS,
)
from embereye_operator.runtime.kubernetes.runtime import ALL_NAMESPACES

OURS: dict[str, Any] = {"app.kubernetes.io/part-of": "embereye"}
LINES = 5000  # of each container's log, the newest
# An apostrophe may be a password's; else it is that which ends what is quoted.
URL = re.compile(r"""[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^\s"\\<>/?#]*@)?[^\s"'\\<>]*""")
SECRET_NAME = re.compile(r"pass|token|secret|key|credential|auth|header|dsn", re.IGNORECASE)
OPTION = re.compile(r"(?P<name>--?[a-zA-Z][\w-]*)(?P<value>=.*)?", re.DOTALL)
# As settings and headers are written: password=…, token: …, "secret": "…", Bearer ….
SETTING = re.compile(
    r"""\b(?P<name>(?:\w*(?:password|passwd|token|secret|api[_-]?key)\\*["']?\s*[=:]\s*|(?:authorization:\s*)?bearer\s+|authorization:\s*basic\s+)\\*["']?)"""
    r"""(?P<value>[^\s"'\\,;{}\[\]…]{4,})""",
    re.IGNORECASE,
)
UNTOLD = (httpx.HTTPStatusError, httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError)  # ApiError among them
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # the object once more, as one text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")
    parser.add_argument(
        "--to", type=Path, default=None, metavar="FILE", help="default: embereye-report-TIME.tar.gz, here"
    )
    parser.add_argument("--lines", type=int, default=LINES, help="of each container's log, the newest (%(default)s)")


async def run(arguments: argparse.Namespace) -> int:
    """Write the archive; what may not be read is told in it and on standard error."""
    began = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = arguments.to or Path(f"embereye-report-{began}.tar.gz")
    async with connected(target_of(arguments)) as client:
        namespace = ALL_NAMESPACES if arguments.all_namespaces else client.namespace
        try:
            with tarfile.open(path, "w:gz") as archive:
                await _Report(client, archive, path.name.removesuffix(".tar.gz")).collect(namespace, arguments.lines)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}") from error
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB. Look at it before you send it to anybody.")
    return 0


def concealed(document: Any) -> str:
    """An object as JSON without what is nobody else's business."""
    return without_secrets(json.dumps(_without_values(document), indent=1, sort_keys=True, ensure_ascii=False))


def without_secrets(text: str) -> str:
    """`text` with scheme, host and port alone of every URL in it, and without values of what is called a secret."""
    return SETTING.sub(r"\g<name>…", URL.sub(lambda found: redact(found[0]), text))


def _without_values(document: Any) -> Any:
    if isinstance(document, list):
        return [_without_values(entry) for entry in document]
    if not isinstance(document, dict):
        return document
    left_out = {"managedFields", "binaryData", APPLIED}
    unpacked = {"data": placement_files(document)} if "binaryData" in document else {}
    kept = {name: _without_values(value) for name, value in {**document, **unpacked}.items() if name not in left_out}
    if isinstance(kept.get("value"), str) and SECRET_NAME.search(str(kept.get("name", ""))):
        kept["value"] = "…"
    for name in ("command", "args"):
        if isinstance(kept.get(name), list):
            kept[name] = _without_options(kept[name])
    return kept


def _without_options(words: list[Any]) -> list[Any]:
    """A command's words without the values of options that are called a secret; a file's name is none."""
    found: list[Any] = []
    hide = False
    for word in words:
        option = OPTION.fullmatch(word) if isinstance(word, str) else None
        secret = option is not None and SECRET_NAME.search(option["name"]) and not option["name"].endswith("-file")
        if option is not None and secret and option["value"]:
            found.append(f"{option['name']}=…")
        else:
            found.append("…" if hide and option is None else word)
        hide = bool(secret and option is not None and not option["value"])
    return found


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, ApiError):
        return str(error.status.message)
    return str(error) or type(error).__name__


class _Report:
    def __init__(self, client: AsyncClient, archive: tarfile.TarFile, folder: str) -> None:
        self._client = client
        self._archive = archive
        self._folder = folder
        self._missing: list[str] = []

    async def collect(self, namespace: str, lines: int) -> None:
        """Everything of `namespace` ("*": of all), and of the release where that may be read."""
        for name, kind in FLEETS.items():
            await self._objects(name, partial(self._client.list, kind, namespace=namespace))
        labels: dict[str, Any] = {LABEL_MANAGED_BY: MANAGED_BY}
        for name, kind in CHILDREN.items():
            await self._objects(
                name,
                partial(self._client.list, kind, namespace=namespace, labels=labels),
                optional=name in OPTIONAL,
            )
        await self._objects("Event", lambda: self._client.list(EVENTS, namespace=namespace))
        await self._objects("Lease", lambda: self._client.list(LEASES, namespace=namespace))
        await self._objects("Node", lambda: self._client.list(NODES))
        pods = await self._objects("Pod", lambda: self._client.list(PODS, namespace=namespace, labels=OURS))
        for pod in pods:
            await self._logs(pod, lines)
        missing = [*self._missing, *([] if pods else [f"no pod of ours was found in namespace {namespace}"])]
        self._add("missing.txt", "".join(f"{line}\n" for line in missing) or "nothing\n")
        for line in missing:
            print(f"not in the report: {line}", file=sys.stderr)

    async def _objects(self, name: str, listed: Callable[[], Any], *, optional: bool = False) -> list[dict[str, Any]]:
        print(f"{name} … ", end="", file=sys.stderr, flush=True)
        try:
            found = [dict(entry) async for entry in listed()]
        except UNTOLD as error:
            print("no", file=sys.stderr)
            unknown = isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 404
            if not (optional and unknown):  # a kind that the cluster does not know
                self._missing.append(f"{name}: {_reason(error)}")
            return []
        print(len(found), file=sys.stderr)
        self._add(f"objects/{name}.json", concealed(found))
        return found

    async def _logs(self, pod: dict[str, Any], lines: int) -> None:
        metadata = pod["metadata"]
        where = f"{metadata['namespace']}/{metadata['name']}"
        for container in pod["spec"]["containers"]:
            text: list[str] = []
            try:
                log: Any = self._client.log(
                    metadata["name"], namespace=metadata["namespace"], container=container["name"], tail_lines=lines,
                    timestamps=True,
                )  # fmt: skip
                async for line in log:
                    text.append(line)  # noqa: PERF401 -- what came before it broke off is kept
            except UNTOLD as error:
                self._missing.append(f"the log of {where} {container['name']}: {_reason(error)}")
            self._add(f"logs/{where}/{container['name']}.txt", without_secrets("".join(text)))

    def _add(self, name: str, text: str) -> None:
        data = text.encode()
        entry = tarfile.TarInfo(f"{self._folder}/{name}")
        entry.size, entry.mtime = len(data), int(time.time())
        self._archive.addfile(entry, io.BytesIO(data))
