"""The hub's pods: why the hub does not answer, and a new pod where its node was lost."""

import logging
import re
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.units import bracketed
from embereye_operator.decide.cluster.hub_pod import why_hub_is_away
from embereye_operator.decide.cluster.nodes import newest
from embereye_operator.decide.cluster.pods import why_refused
from embereye_operator.runtime.kubernetes.client.cache import cluster_ip_of
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, CLAIMS
from embereye_operator.runtime.kubernetes.nodes import Nodes

logger = logging.getLogger(__name__)
IN_CLUSTER = re.compile(r"([a-z][a-z0-9-]*)(?:\.([a-z0-9-]+)(?:\.svc\b.*)?)?:\d+")


def service_of(address: str) -> tuple[str, str] | None:
    """Name and namespace ("": the operator's own) of the Service that `address` names; None where it names none."""
    match = IN_CLUSTER.fullmatch(address)
    return (match[1], match[2] or "") if match and match[1] != "localhost" else None


class HubPods:
    """What can be known of the hub by its pods."""

    def __init__(self, client: AsyncClient, address: str, nodes: Nodes) -> None:
        """`address` is the hub's, host:port."""
        self.trouble = ""  # why the hub does not answer, with the remedy; "" where it does, or nothing is known
        self.address = ""  # the same host:port with the number of its Service, which nobody has to resolve; "": unknown
        self._port = address.rpartition(":")[2]
        self._client = client
        service = service_of(address)
        self._service = service and (service[0], service[1] or client.namespace)
        self._nodes = nodes
        self._refused = ""

    async def locate(self) -> None:
        """Find out `address`."""
        if self._service is not None:
            try:
                await self._selector(*self._service)
            except ApiError as error:
                if error.status.code != 403:
                    raise

    async def diagnose(self, *, answers: bool) -> None:
        """Find out why the hub does not answer; delete a pod whose node was lost, for another one to be made."""
        if answers or self._service is None:
            self.trouble = ""
            return
        name, namespace = self._service
        try:
            selector = await self._selector(name, namespace)
            if not selector:
                self.trouble = f"there is no Service {namespace}/{name} with a selector"
                return
            pods = await self._nodes.pods(namespace, selector)
            listed: Any = self._client.list(CLAIMS, namespace=namespace)
            claims = [claim async for claim in listed]
            if newest(pods):
                refused = ""
            else:
                chosen: Any = selector
                made: Any = self._client.list(CHILDREN["Deployment"], namespace=namespace, labels=chosen)
                refused = "; ".join([why async for hub in made if (why := why_refused(hub))])
        except ApiError as error:
            if error.status.code != 403:
                raise
            if str(error) != self._refused:
                logger.warning("cannot see why the hub does not answer: %s", error.status.message)
            self._refused = str(error)
            return
        self.trouble = refused or why_hub_is_away(pods, claims)
        by_node = {pod["spec"].get("nodeName", ""): pod for pod in newest(pods)}
        for node in await self._nodes.without_heartbeat(by_node.keys() - {""}):
            pod = by_node[node]["metadata"]["name"]
            # The next one keeps away from where a pod of the hub is that has not ended: it cannot be put here again.
            logger.warning("the hub's pod %s was on node %s, which does not run any more: it is deleted", pod, node)
            await self._nodes.delete_pod(namespace, pod)
            self.trouble = f"its pod {namespace}/{pod} was on node {node}, which does not run any more"

    async def _selector(self, name: str, namespace: str) -> dict[str, str]:
        listed: Any = self._client.list(CHILDREN["Service"], namespace=namespace, fields={"metadata.name": name})
        found = [{**service, "kind": "Service"} async for service in listed]
        number = cluster_ip_of(found[0]) if found else ""
        self.address = f"{bracketed(number)}:{self._port}" if number else ""
        return dict(found[0]["spec"].get("selector") or {}) if found else {}
