"""The chart's Certificate, checked by cert-manager's schema on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from harness.cluster.chart import NAMESPACE, operators_rights, render
from harness.eventually import wait_for
from harness.need import CERT_MANAGER, CERTIFICATES
from harness.servers.apiserver import ApiError, ApiServer, path_of

ISSUER = ("--set", "identity.issuerRef.name=internal", "--set", "identity.issuerRef.kind=ClusterIssuer")


def certificate(*values: str) -> dict[str, Any]:
    (manifest,) = [manifest for manifest in render(*ISSUER, *values) if manifest["kind"] == "Certificate"]
    return manifest


@pytest.fixture(scope="module")
def certificates(cluster: ApiServer) -> Iterator[ApiServer]:
    """An API server that knows cert-manager's Certificates."""
    # Helm would fill in labels and a condition only.
    text = "\n".join(line for line in CERTIFICATES.read_text().splitlines() if "{{" not in line)
    kind = yaml.load(text, yaml.CSafeLoader)
    cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
    wait_for(lambda: cluster.get("/apis/cert-manager.io/v1/certificates"), "Certificates are served")
    yield cluster
    cluster.request("DELETE", path_of(kind))


@pytest.mark.apiserver
@pytest.mark.needs(CERT_MANAGER)
def test_cert_managers_schema_accepts_the_certificate(certificates: ApiServer, namespace: str) -> None:
    manifest = certificate()
    manifest["metadata"]["namespace"] = namespace
    strictly = "?dryRun=All&fieldManager=helm&fieldValidation=Strict"
    stored = certificates.request("PATCH", path_of(manifest) + strictly, manifest, "application/apply-patch+yaml")
    assert stored["spec"] == manifest["spec"]
    manifest["spec"]["privateKey"]["encoding"] = "PKCS9"
    with pytest.raises(ApiError, match=r"privateKey\.encoding"):
        certificates.request("PATCH", path_of(manifest) + strictly, manifest, "application/apply-patch+yaml")


def test_the_issuer_of_the_values_issues_the_authority_for_the_operator_only() -> None:
    spec = certificate("--set", "identity.duration=720h", "--set", "identity.renewBefore=240h")["spec"]
    assert spec["issuerRef"] == {"name": "internal", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert (spec["isCA"], spec["duration"], spec["renewBefore"]) == (True, "720h", "240h")
    assert spec["secretName"] == "embereye-issued-ca"
    (operator,) = [
        m["spec"]["template"]["spec"]["containers"][0]["args"]
        for m in render(*ISSUER)
        if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-operator")
    ]
    assert "--authority-secret=embereye-issued-ca" in operator
    rules = [
        (m["metadata"]["namespace"], rule["verbs"])
        for m in operators_rights(*ISSUER)
        for rule in m.get("rules", ())
        if rule.get("resourceNames") == ["embereye-issued-ca"]
    ]
    assert rules == [(NAMESPACE, ["get"])]


def test_without_an_issuer_cert_manager_is_not_needed() -> None:
    assert "cert-manager" not in str([m for m in render() if m["kind"] != "CustomResourceDefinition"])
    assert "issued-ca" not in str(render())
