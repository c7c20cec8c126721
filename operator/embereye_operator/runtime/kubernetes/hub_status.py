"""The lines about hubs in `kubectl embereye status`: one for each hub that does not run."""

from lightkube import AsyncClient

from embereye_operator.decide.cluster.hub_pod import why_hub_is_away
from embereye_operator.decide.cluster.pods import why_refused
from embereye_operator.runtime.kubernetes.client.answers import list_objects, tolerating
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES, CHILDREN, CLAIMS, PODS
from embereye_operator.runtime.kubernetes.hub_pods import read_secrets

HUBS = {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/component": "hub"}


async def hub_troubles(client: AsyncClient) -> list[str]:
    """Return a sentence for each hub in the cluster that does not run; empty if the user may not read them."""
    troubles: list[str] = []
    with tolerating(403):
        for hub in await list_objects(client, CHILDREN["Deployment"], ALL_NAMESPACES, labels=HUBS):
            if (hub.get("status") or {}).get("availableReplicas"):
                continue
            name, namespace = hub["metadata"]["name"], hub["metadata"]["namespace"]
            pods = await list_objects(client, PODS, namespace, labels=hub["spec"]["selector"]["matchLabels"])
            secrets = await read_secrets(client, namespace, pods)
            why = why_refused(hub) or why_hub_is_away(pods, await list_objects(client, CLAIMS, namespace), secrets)
            troubles.append(f"hub {namespace}/{name} does not run: {why or 'its pod is not ready yet'}")
    return troubles
