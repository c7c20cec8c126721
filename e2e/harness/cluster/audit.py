"""The operator's requests, from the audit log of the API server.

`AuditLog.begin` turns the log on: it edits the API server's manifest, and kubelet starts the server again. `read`
returns the requests since the last call.
"""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from harness.cluster.cluster import Cluster, execute, until
from harness.servers.apiserver import OPERATOR

MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
FOLDER = "/var/log/embereye-audit"  # on the node and in the container
STARTED_SECONDS = 120.0
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
REFUSED = 400  # the first status code of an answer to a request that changed nothing
# Requests of the operator, with the content of those that change a fleet or its status.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Request", "users": [OPERATOR], "verbs": sorted(WRITES), "resources": [{"group": "embereye.dev"}]},
        {"level": "Metadata", "users": [OPERATOR]},
        {"level": "None"},
    ],
}
# Requests by writing verbs that do not count: signs of life, reports to people, and questions, which nothing stores.
ROUTINE = frozenset({
    "leases", "events", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews",
})  # fmt: skip


class AuditLog:
    """The audit log of a cluster's API server, read from its node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._node = ""
        self._read = 0  # bytes

    async def begin(self) -> None:
        """Turn the log on if it is not, and skip what it already has."""
        (plane,) = await self._cluster.items("nodes", "--selector", "node-role.kubernetes.io/control-plane")
        self._node = plane["metadata"]["name"]
        manifest = yaml.safe_load(await self._cluster.on_node(self._node, "cat", MANIFEST))
        if with_audit(manifest):
            await self._write(f"{FOLDER}/policy.yaml", json.dumps(POLICY))
            # kubelet reads every file of its folder, so the new manifest is written elsewhere first.
            await self._write("/etc/kubernetes/kube-apiserver.new", yaml.safe_dump(manifest))
            await self._cluster.on_node(self._node, "mv", "/etc/kubernetes/kube-apiserver.new", MANIFEST)
            await until(self._is_on, bool, "the API server runs with an audit log", STARTED_SECONDS)
        self._read = int(await self._cluster.on_node(self._node, "stat", "--format=%s", f"{FOLDER}/audit.log"))

    async def _write(self, path: str, text: str) -> None:
        script = f'mkdir -p "$(dirname {path})" && cat >{path}'
        result = await execute(["docker", "exec", "--interactive", self._node, "sh", "-c", script], stdin=text)
        if result.code:
            raise RuntimeError(f"{self._node}: {path}: cannot be written: {result.err.strip()}")

    async def _is_on(self) -> bool:
        log = await execute(["docker", "exec", self._node, "test", "-e", f"{FOLDER}/audit.log"])
        return not log.code and bool(await self._cluster.kubectl("get", "--raw", "/readyz", check=False, limit=5))

    async def read(self) -> list[dict[str, Any]]:
        """The requests since the last call, in order."""
        tail = ["docker", "exec", self._node, "tail", f"--bytes=+{self._read + 1}", f"{FOLDER}/audit.log"]
        result = await execute(tail)
        complete = result.out[: result.out.rfind("\n") + 1]
        self._read += len(complete.encode())
        return list(parse_requests(complete))


def parse_requests(text: str) -> Iterator[dict[str, Any]]:
    """Yield the requests of an audit log's complete lines."""
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def with_audit(manifest: dict[str, Any]) -> bool:
    """Add the audit log to the API server's manifest. Returns False if it has it already."""
    spec = manifest["spec"]
    (container,) = spec["containers"]
    if any(word.startswith("--audit-log-path=") for word in container["command"]):
        return False
    container["command"] += [
        f"--audit-policy-file={FOLDER}/policy.yaml", f"--audit-log-path={FOLDER}/audit.log",
        "--audit-log-maxsize=1000",
    ]  # fmt: skip
    container["volumeMounts"].append({"name": "audit", "mountPath": FOLDER})
    spec["volumes"].append({"name": "audit", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}})
    return True


def is_write(request: dict[str, Any]) -> bool:
    """True if a request has changed an object that is neither a lease nor an event."""
    if request.get("responseStatus", {}).get("code", 0) >= REFUSED or "dryRun=" in request.get("requestURI", ""):
        return False
    return request["verb"] in WRITES and request.get("objectRef", {}).get("resource") not in ROUTINE


def request_kind(request: dict[str, Any]) -> str:
    """The verb and the resource of a request, such as "patch sensorfleets/status"."""
    target = request.get("objectRef", {})
    resource = target.get("resource", request.get("requestURI", "").partition("?")[0])
    subresource = f"/{target['subresource']}" if target.get("subresource") else ""
    return f"{request['verb']} {resource}{subresource}"
