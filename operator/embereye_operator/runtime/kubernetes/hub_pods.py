"""The hub's pods: find out why the hub does not answer, and replace a pod whose node is lost.

`KubernetesLinks` has one `HubPods` for each hub and calls `diagnose` every few seconds. While the hub serves, nothing
is read. Otherwise its Service leads to its pods, and `decide/cluster/hub_pod.py` explains their state; `trouble` is
then part of the error of a pass. A pod on a node without heartbeat is deleted, so that a new one starts elsewhere.
"""

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.process.condition import Condition
from embereye.units import bracketed
from embereye_operator.decide.cluster.hub_pod import needed_secrets, why_hub_is_away
from embereye_operator.decide.cluster.nodes import newest
from embereye_operator.decide.cluster.pods import why_refused
from embereye_operator.runtime.kubernetes.client.answers import list_objects, tolerating
from embereye_operator.runtime.kubernetes.client.cache import cluster_ip_of
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, CLAIMS, SECRETS
from embereye_operator.runtime.kubernetes.nodes import Nodes

logger = logging.getLogger(__name__)
IN_CLUSTER = re.compile(r"([a-z][a-z0-9-]*)(?:\.([a-z0-9-]+)(?:\.svc\b.*)?)?:\d+")


def service_of(address: str) -> tuple[str, str] | None:
    """Return name and namespace ("": the operator's) of the Service in `address`; None if it is no Service."""
    match = IN_CLUSTER.fullmatch(address)
    return (match[1], match[2] or "") if match and match[1] != "localhost" else None


async def read_secrets(
    client: AsyncClient, namespace: str, pods: Iterable[Mapping[str, Any]]
) -> dict[str, Collection[str] | None]:
    """Return the keys of each Secret that pending `pods` need, None if it does not exist.

    It is empty if Secrets may not be listed.
    """
    known: dict[str, Collection[str] | None] = {}
    with tolerating(403):
        for pod in pods:
            pending = (pod.get("status") or {}).get("phase") == "Pending"
            for name in needed_secrets(pod).keys() - known.keys() if pending else ():
                secrets = await list_objects(client, SECRETS, namespace, fields={"metadata.name": name})
                known[name] = set(secrets[0].get("data") or {}) if secrets else None
    return known


class HubPods:
    """The state of one hub's pods."""

    def __init__(self, client: AsyncClient, address: str, nodes: Nodes) -> None:
        """`address` is the hub's, host:port."""
        self.trouble = ""  # why the hub does not answer, with the remedy; "" if it does, or the reason is unknown
        self.address = ""  # host:port with the IP address of its Service, without a name to resolve; "": unknown
        self._port = address.rpartition(":")[2]
        self._client = client
        service = service_of(address)
        self._service = service and (service[0], service[1] or client.namespace)
        self._nodes = nodes
        self._refused = Condition(logger)

    async def locate(self) -> None:
        """Update `address`."""
        if self._service is not None:
            with tolerating(403):
                await self._selector(*self._service)

    async def diagnose(self, *, is_serving: bool) -> None:
        """Find out why the hub does not answer; delete its pod on a lost node, so that a new one is created."""
        if is_serving or self._service is None:
            self.trouble = ""
            return
        name, namespace = self._service
        try:
            selector = await self._selector(name, namespace)
            if not selector:
                self.trouble = f"Service {namespace}/{name} does not exist, or has no selector"
                return
            pods = await self._nodes.pods(namespace, selector)
            claims = await list_objects(self._client, CLAIMS, namespace)
            if newest(pods):
                refused = ""
            else:
                deployments = await list_objects(self._client, CHILDREN["Deployment"], namespace, labels=selector)
                refused = "; ".join(why for hub in deployments if (why := why_refused(hub)))
        except ApiError as error:
            if error.status.code != 403:
                raise
            self._refused.fail(str(error), "cannot find out why the hub does not answer: %s", error.status.message)
            return
        self.trouble = refused or why_hub_is_away(pods, claims, await read_secrets(self._client, namespace, pods))
        by_node = {pod["spec"].get("nodeName", ""): pod for pod in newest(pods)}
        for node in await self._nodes.without_heartbeat(by_node.keys() - {""}):
            pod = by_node[node]["metadata"]["name"]
            # The next pod avoids the node of a hub pod that has not ended, so it cannot land here again.
            logger.warning("deleting the hub's pod %s: its node %s is lost", pod, node)
            await self._nodes.delete_pod(namespace, pod)
            self.trouble = f"its pod {namespace}/{pod} was on node {node}, which is lost"

    async def _selector(self, name: str, namespace: str) -> dict[str, str]:
        services = await list_objects(self._client, CHILDREN["Service"], namespace, fields={"metadata.name": name})
        number = cluster_ip_of({**services[0], "kind": "Service"}) if services else ""
        self.address = f"{bracketed(number)}:{self._port}" if number else ""
        return dict(services[0]["spec"].get("selector") or {}) if services else {}
