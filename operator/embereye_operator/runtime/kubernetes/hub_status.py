"""The lines about hubs in `kubectl embereye status`: one for each hub that does not run."""

from typing import Any

from lightkube import AsyncClient

from embereye_operator.decide.cluster.hub_pod import why_hub_is_away
from embereye_operator.decide.cluster.pods import why_refused
from embereye_operator.runtime.kubernetes.client.answers import tolerating
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES, CHILDREN, CLAIMS, PODS
from embereye_operator.runtime.kubernetes.hub_pods import read_secrets

HUBS: Any = {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/component": "hub"}


async def hub_troubles(client: AsyncClient) -> list[str]:
    """Return a sentence for each hub in the cluster that does not run; empty if the user may not read them."""
    troubles: list[str] = []
    with tolerating(403):
        listed: Any = client.list(CHILDREN["Deployment"], namespace=ALL_NAMESPACES, labels=HUBS)
        hubs = [hub async for hub in listed]
        for hub in hubs:
            if (hub.get("status") or {}).get("availableReplicas"):
                continue
            name, namespace = hub["metadata"]["name"], hub["metadata"]["namespace"]
            selector: Any = hub["spec"]["selector"]["matchLabels"]
            pods: Any = client.list(PODS, namespace=namespace, labels=selector)
            claims: Any = client.list(CLAIMS, namespace=namespace)
            listed_pods = [pod async for pod in pods]
            secrets = await read_secrets(client, namespace, listed_pods)
            why = why_refused(hub) or why_hub_is_away(listed_pods, [claim async for claim in claims], secrets)
            troubles.append(f"hub {namespace}/{name} does not run: {why or 'its pod is not ready yet'}")
    return troubles
