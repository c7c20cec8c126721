"""A real kube-apiserver with etcd and, for garbage collection, a kube-controller-manager, on free loopback ports.

`run_api_server` starts them in a temporary folder and kills them at the end. There are two users, each with a token:
an administrator, and the chart's operator, who has only the rights of its roles. The server's audit log has every
request of the operator. `ApiServer` is a plain HTTP client, so that tests do not check the product by its own code.
"""

import contextlib
import json
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from embereye.process.addresses import free_ports
from harness.eventually import wait_for
from harness.need import API_SERVER, OPENSSL, program

TOKEN = "test-token"
# The chart's operator, in a release named embereye in the namespace embereye.
OPERATOR = "system:serviceaccount:embereye:embereye-operator"
OPERATOR_TOKEN = "operator-token"


class ApiError(Exception):
    """A refusal of the API server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [OPERATOR]}, {"level": "None"}],
}


@dataclass
class ApiServer:
    """A plain HTTP client of the API server, independent of the code under test."""

    url: str
    kubeconfig: Path  # of an administrator
    operator_kubeconfig: Path  # of OPERATOR, limited by its roles
    context: ssl.SSLContext
    collects_garbage: bool
    audit_log: Path  # requests of OPERATOR
    warnings: list[str] = field(default_factory=list)  # of all answers: deprecated kinds and fields, policies

    def request(
        self, method: str, path: str, body: Any = None, content: str = "application/json", token: str = TOKEN
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", content)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=10) as response:
                self.warnings += response.headers.get_all("Warning", ())
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError):
                message = text
            raise ApiError(error.code, message) from None

    def get(self, path: str) -> Any:
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.code in {404, 429, 503}:  # also while a new CRD is not served yet
                return None
            raise

    def audit(self) -> list[Any]:
        """Every answered request of OPERATOR, in order."""
        lines = self.audit_log.read_text().splitlines() if self.audit_log.exists() else []
        return [json.loads(line) for line in lines]

    def merge(self, path: str, patch: Any) -> Any:
        return self.request("PATCH", path, patch, "application/merge-patch+json")


CLUSTER_SCOPED = {
    "Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PersistentVolume",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
VERSIONS = {
    "Deployment": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "SensorFleet": "embereye.dev/v1alpha1",
    "CameraFleet": "embereye.dev/v1alpha1",
}


def path_of(manifest: Any, *, name: bool = True) -> str:
    """The API path of an object, or of its collection."""
    kind = manifest["kind"]
    version = manifest.get("apiVersion") or VERSIONS.get(kind, "v1")
    path = f"/{'apis' if '/' in version else 'api'}/{version}"
    if kind not in CLUSTER_SCOPED:
        path += f"/namespaces/{manifest['metadata']['namespace']}"
    path += f"/{kind.lower().removesuffix('y')}ies" if kind.endswith("y") else f"/{kind.lower()}s"
    return f"{path}/{manifest['metadata']['name']}" if name else path


@contextlib.contextmanager
def run_api_server(*controllers: str, gates: str = "") -> Iterator[ApiServer]:
    """Start the servers, and kill them by process id at the end.

    `controllers` run in addition to the garbage collector; `gates` are feature gates in Kubernetes' form.
    """
    API_SERVER.require()
    OPENSSL.require()
    with tempfile.TemporaryDirectory(prefix="embereye-apiserver-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        key = home / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (home / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n{OPERATOR_TOKEN},{OPERATOR},2\n")
        (home / "audit.json").write_text(json.dumps(AUDIT))
        client_port, peer_port, api_port = free_ports(3)
        etcd = f"http://127.0.0.1:{client_port}"
        peer = f"http://127.0.0.1:{peer_port}"

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            log = stack.enter_context((home / f"{name}.log").open("wb"))
            process = subprocess.Popen([str(program(name)), *arguments], stdout=log, stderr=log, cwd=home)
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            return process

        start(
            "etcd", f"--data-dir={home}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--unsafe-no-fsync", "--log-level=error",
        )  # fmt: skip
        server = start(
            "kube-apiserver", f"--etcd-servers={etcd}", f"--secure-port={api_port}", "--bind-address=127.0.0.1",
            f"--cert-dir={home}/certs", f"--token-auth-file={home}/tokens.csv", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/16",
            "--disable-admission-plugins=ServiceAccount", "--watch-cache=true",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            f"--audit-policy-file={home}/audit.json", f"--audit-log-path={home}/audit.log",
            f"--feature-gates={gates}",
        )  # fmt: skip
        certificate = home / "certs" / "apiserver.crt"
        wait_for(lambda: certificate.exists() and certificate.stat().st_size, "kube-apiserver's certificate")
        url = f"https://127.0.0.1:{api_port}"
        collects = program("kube-controller-manager") is not None
        kubeconfig, restricted = home / "kubeconfig", home / "operator-kubeconfig"
        kubeconfig.write_text(_kubeconfig(url, certificate, TOKEN))
        restricted.write_text(_kubeconfig(url, certificate, OPERATOR_TOKEN))
        context = ssl.create_default_context(cafile=certificate)
        cluster = ApiServer(url, kubeconfig, restricted, context, collects, home / "audit.log")

        def ready() -> bool:
            if server.poll() is not None:
                pytest.fail(f"kube-apiserver ended: {(home / 'kube-apiserver.log').read_text()[-2000:]}")
            try:
                # The default namespace is sufficient, and exists before /readyz succeeds.
                return bool(cluster.get("/api/v1/namespaces/default"))
            except (OSError, ApiError):
                return False

        wait_for(ready, "kube-apiserver", 60)
        if collects:
            start(
                "kube-controller-manager", f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0",
                f"--controllers={','.join(('garbage-collector-controller', *controllers))}",
                "--horizontal-pod-autoscaler-sync-period=1s", f"--feature-gates={gates}",
            )  # fmt: skip
        yield cluster


def _kubeconfig(url: str, certificate: Path, token: str) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "t", "cluster": {"server": url, "certificate-authority": str(certificate)}}],
        "users": [{"name": "t", "user": {"token": token}}],
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "current-context": "t",
    }
    return json.dumps(document)


def install_crds(cluster: ApiServer, crds: list[Any]) -> None:
    """Create the CRDs and wait until they are served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for crd in crds:
        cluster.request("POST", path, crd)
        name, plural = crd["metadata"]["name"], crd["spec"]["names"]["plural"]

        def established(name: str = name) -> bool:
            conditions = (cluster.get(f"{path}/{name}") or {}).get("status", {}).get("conditions") or []
            return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

        wait_for(established, f"CRD {name}")
        group, version = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
        served = f"/apis/{group}/{version}/namespaces/default/{plural}"
        wait_for(partial(cluster.get, served), plural)
