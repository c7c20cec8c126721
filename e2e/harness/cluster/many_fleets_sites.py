"""The two ways to run many fleets: with stubs in pods of a cluster, and simulated on an API server alone.

`running_pods` turns on the API server's audit log in a clean cluster, installs a release with one operator, and removes
everything at the end. `running_simulated` starts kube-apiserver, etcd, and an operator that simulates the shards in its
process. This operator is the chart's user, so that its requests are in the audit log, too, but with all rights.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from embereye_bench.operator.site import NAMESPACE, Operator
from embereye_bench.operator.site import Site as SimulatedSite
from embereye_operator.api.crds import build_crd
from embereye_operator.api.fleets import FLEET_TYPES
from harness.cluster.audit import AuditLog, parse_requests, request_kind
from harness.cluster.cluster import Cluster, CommandError, Json, script, until
from harness.cluster.figures import SILENT, ApiReader, ContainerUsage, sum_requests, usages
from harness.cluster.many_fleets import PODS, SIMULATED, STUB_IMAGE, Usage, value
from harness.cluster.site import SITE, SYSTEM, VOLUME, Site
from harness.servers.apiserver import OPERATOR, ApiServer, install_crds, run_api_server

STARTED_SECONDS = 300.0  # time limit for the release to start
ANSWER_SECONDS = 120.0  # time limit for the API server to answer
GONE_SECONDS = 1800.0  # time limit for the pods of deleted fleets to end
PORT = 8081  # of the operator's metrics
LEADING = "embereye_operator_leading"
RELEASE_PODS = 10  # places for the release, and for pods that enforce policies


class PodFleets:
    """Fleets in a cluster."""

    way = PODS

    def __init__(self, site: Site) -> None:
        self._site, self._cluster = site, site.cluster
        self._reader = ApiReader(site.cluster.kubeconfig)
        self._audit = AuditLog(site.cluster)
        self._asked = Counter[str]()

    async def start(self) -> None:
        """Turn on the audit log, for which the API server starts again, and install the release."""
        await self._audit.begin()
        await self._site.install(f"hub.persistence.storageClass={VOLUME}", "operator.replicas=1")

        async def is_leading() -> bool:
            return value(await self.page(), LEADING) == 1

        await until(is_leading, bool, "the operator leads", STARTED_SECONDS, 2.0)

    async def declare(self, fleets: Sequence[Json]) -> None:
        """See ManyFleets."""
        await self._cluster.apply(*fleets)

    async def page(self) -> str:
        """See ManyFleets."""
        pods = await self._site.pods(component="operator", namespace=SYSTEM)
        if not pods:
            return ""
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pods[0]['metadata']['name']}:{PORT}/proxy/metrics"
        return await self._try_to_read(path)

    async def _try_to_read(self, path: str) -> str:
        try:
            return await self._reader.text(path)
        except SILENT:
            return ""

    async def _text(self, path: str) -> str:
        """Read a path. A busy API server is asked again."""
        return await until(lambda: self._try_to_read(path), bool, f"an answer to {path}", ANSWER_SECONDS, 2.0)

    async def asked(self) -> Counter[str]:
        """See ManyFleets."""
        self._asked += Counter(map(request_kind, await self._audit.read()))
        return self._asked.copy()

    async def served(self) -> int:
        """See ManyFleets."""
        return sum_requests(await self._text("/metrics")).total()

    async def usage(self) -> Usage:
        """See ManyFleets."""
        used: list[ContainerUsage] = []
        for node in await self._cluster.nodes():
            used += usages(await self._text(f"/api/v1/nodes/{node}/proxy/metrics/cadvisor"))
        hubs = {pod["metadata"]["name"] for pod in await self._site.pods(component="hub", namespace=SYSTEM)}
        hub = [usage for usage in used if usage.namespace == SYSTEM and usage.pod in hubs]
        shards = [usage.memory_mb for usage in used if usage.namespace == SITE]
        return Usage(
            hub_mb=sum(usage.memory_mb + usage.files_mb for usage in hub),
            hub_cpu_seconds=sum(usage.cpu_seconds for usage in hub),
            shard_mb=sum(shards) / max(1, len(shards)),
        )

    async def describe_problem(self) -> str:
        """See ManyFleets."""
        pods = await self._cluster.items("pods", "--namespace", SITE)
        states = Counter(_state(pod) for pod in pods)
        return "pods: " + (", ".join(f"{count} {state}" for state, count in states.most_common()) or "none")

    async def close(self) -> None:
        """Save the logs of the operator and of the hub, and close all connections."""
        for component in ("operator", "hub"):
            selector = f"app.kubernetes.io/component={component}"
            arguments = ["logs", "--namespace", SYSTEM, "--selector", selector, "--tail=-1", "--timestamps"]
            log = await self._cluster.kubectl(*arguments, check=False)
            (self._cluster.diary.folder / f"{component}.log").write_text(log)
        await self._reader.close()


def _state(pod: Json) -> str:
    """The reason why a pod waits, or else its phase."""
    for status in pod["status"].get("containerStatuses", []):
        if waiting := status.get("state", {}).get("waiting"):
            return str(waiting.get("reason", "waiting"))
        if not status.get("ready"):
            return "not ready"
    return str(pod["status"].get("phase", "unknown"))


async def free_places(cluster: Cluster) -> int:
    """The number of pods that the workers have room for, besides those that run and the release's."""
    workers = await cluster.items("nodes", "--selector", "!node-role.kubernetes.io/control-plane")
    names = {node["metadata"]["name"] for node in workers}
    pods = await cluster.items("pods", "--all-namespaces")
    taken = sum(pod["spec"].get("nodeName") in names for pod in pods)
    return sum(int(node["status"]["allocatable"]["pods"]) for node in workers) - taken - RELEASE_PODS


async def _clean(site: Site) -> None:
    """Delete fleets first: hundreds of pods need longer to end than the deletion of a namespace may take."""
    await site.cluster.kubectl(
        "delete", "sensorfleets.embereye.dev", "--all", "--namespace", SITE, "--wait=false", check=False, limit=300
    )

    async def stubs() -> int:
        pods = await site.cluster.items("pods", "--namespace", SITE)
        return sum(pod["spec"]["containers"][0]["image"] == STUB_IMAGE for pod in pods)

    await until(stubs, lambda count: not count, "no stub is left", GONE_SECONDS, 2.0)
    await site.clean()


@asynccontextmanager
async def running_pods(site: Site, *, most: int, leave: bool) -> AsyncIterator[PodFleets]:
    """Install the release in a clean cluster for at most `most` fleets, and remove all at the end unless `leave`.

    Raises:
        CommandError: something cannot be installed, or the nodes have not room for so many pods.
    """
    diary, cluster = site.diary, site.cluster
    with diary.step("a clean cluster with the images"):
        await _clean(site)
        if (places := await free_places(cluster)) < most:
            raise CommandError(
                f"the nodes have room for {places} pods, but {most} fleets are wanted. "
                "Create the cluster again with e2e/cluster/down and `make e2e-up`, or name fewer fleets with --steps."
            )
        await site.prepare()
        await script("program-image", "stub-shard")
        await script("load", STUB_IMAGE)
    fleets = PodFleets(site)
    try:
        with diary.step("a release with one operator"):
            await fleets.start()
        yield fleets
    finally:
        with contextlib.suppress(CommandError, *SILENT):  # the cluster may be the reason for the end
            await fleets.close()
        if not leave:
            with diary.step("everything is removed"):
                await _clean(site)


class SimulatedFleets:
    """Fleets on an API server, whose shards an operator simulates."""

    way = SIMULATED

    def __init__(self, server: ApiServer, site: SimulatedSite, operator: Operator) -> None:
        self._server, self._site, self._operator = server, site, operator

    async def declare(self, fleets: Sequence[Json]) -> None:
        """See ManyFleets."""
        await self._site.create(fleets)

    async def page(self) -> str:
        """See ManyFleets."""
        return await asyncio.to_thread(self._operator.metrics)

    async def asked(self) -> Counter[str]:
        """See ManyFleets."""
        return await asyncio.to_thread(
            lambda: Counter(map(request_kind, parse_requests(self._server.audit_log.read_text())))
        )

    async def served(self) -> None:
        """See ManyFleets: there is nobody else."""

    async def usage(self) -> None:
        """See ManyFleets."""

    async def describe_problem(self) -> str:
        """See ManyFleets."""
        return "see the operator's log in the folder embereye-bench-* of temporary files"


@asynccontextmanager
async def running_simulated() -> AsyncIterator[SimulatedFleets]:
    """Run an API server and an operator with simulated shards; they end with the block."""
    with run_api_server() as server:
        install_crds(server, [build_crd(fleet) for fleet in FLEET_TYPES.values()])
        server.request(
            "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "everything"}, "subjects": [{"kind": "User", "name": OPERATOR}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            },
        )  # fmt: skip
        site = SimulatedSite(server.kubeconfig)
        with site.operator("--lease=many-fleets", KUBECONFIG=str(server.operator_kubeconfig)) as operator:
            fleets = SimulatedFleets(server, site, operator)

            async def is_leading() -> bool:
                return value(await fleets.page(), LEADING) == 1

            await until(is_leading, bool, "the operator leads", STARTED_SECONDS)
            yield fleets


__all__ = ["NAMESPACE", "SITE", "PodFleets", "SimulatedFleets", "free_places", "running_pods", "running_simulated"]
