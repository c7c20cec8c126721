"""The ports that docs/concepts/identity.md lists are reachable from where it says, and no other port of any pod is.

Pods in three namespaces, another node and this machine try every port. In each pod a program opens one more, the door,
and notes what arrives there. Slow: `EMBEREYE_POLICIES=kube-router make e2e ARGS="-m slow"` runs it with kube-router.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from harness.cluster.cluster import NAME, Json, until
from harness.cluster.ports import documented_ports, listening_ports, node_ports_of
from harness.cluster.site import IMAGE, SITE, SYSTEM, VOLUME, Site
from harness.cluster.stranger import PATIENCE, knock
from harness.eventually import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420), pytest.mark.slow]

# Senders, as the page names them.
EVERYBODY = "everybody"
PEOPLE, METRICS = (f"{EVERYBODY}, or `networkPolicy.{value}`" for value in ("people", "metrics"))
OURS, OPERATORS = "EmberEye's pods, in all namespaces", "operators, and shards of its fleet"
# The labels by which a pod poses as one of those.
POSES = {
    OURS: {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/part-of": "embereye"},
    OPERATORS: {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/component": "operator"},
}
ELSEWHERE = "default"  # a namespace with nothing of ours
LISTEN = {"tcp": 9001, "grpc": 50051, "http": 9003}  # of the sensor fleet
DOOR = 12345
OPEN_DOOR = f"""
import select, socket, time
tcp, udp = socket.create_server(("", {DOOR})), socket.socket(type=socket.SOCK_DGRAM)
udp.bind(("", {DOOR}))
print("open", flush=True)
end = time.monotonic() + 400
while time.monotonic() < end:
    for ready in select.select([tcp, udp], [], [], 1)[0]:
        print("tcp" if ready is tcp else "udp", flush=True)
        if ready is tcp:
            ready.accept()[0].close()
        else:
            ready.recv(1)
"""
# The same as a stranger's pod does, from a node, which has no Python.
KNOCK_FROM_NODE = f"""
for target; do
  if timeout {PATIENCE} bash -c "echo >/dev/udp/${{target#*=}}; exec 3<>/dev/tcp/${{target#*=}}" 2>/dev/null
  then echo "${{target%%=*}} open"; else echo "${{target%%=*}} closed"; fi &
done
wait
"""


@dataclass
class Doors:
    """A pod of each component, the addresses of its ports, and what arrived at its door."""

    pods: dict[str, Json]
    arrived: dict[str, Counter[str]] = field(default_factory=dict)

    def documented(self, component: str) -> dict[int, str]:
        """The ports of a component, and their senders."""
        ports = documented_ports()[component.rpartition("-")[2]]
        if component == "sensor-shard":
            ports |= dict.fromkeys(LISTEN.values(), ports[LISTEN["grpc"]])
        return ports

    def open_to(self, *senders: str) -> set[str]:
        """The ports, as "component:port", that the page says are open to any of `senders`."""
        return {
            f"{component}:{port}"
            for component in self.pods
            for port, admitted in self.documented(component).items()
            if admitted in senders
        }

    def targets(self) -> dict[str, str]:
        """Every documented port and the doors, as "component:port" → address."""
        return {
            f"{component}:{port}": f"{pod['status']['podIP']}:{port}"
            for component, pod in self.pods.items()
            for port in (*self.documented(component), DOOR)
        }


@pytest.fixture(scope="module")
def doors() -> Doors:
    """The pods, which the first test fills in."""
    return Doors({})


def _fleets(site: Site) -> tuple[Json, Json]:
    spec: Json = {"shards": 1, "autoscaling": {"mode": "none"}, "expose": site.node_ports}
    sensors = [{"id": "t-1", "zone": "hall"}, {"id": "h-1", "zone": "hall", "source": "push"}]
    cameras = [{"id": "p-1", "zone": "yard", "source": "push"}]

    def fleet(kind: str, name: str, own: Json) -> Json:
        metadata = {"name": name, "namespace": SITE}
        return {"apiVersion": "embereye.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": spec | own}

    return (
        fleet("SensorFleet", "gate", {"sensors": sensors, "listen": LISTEN}),
        fleet("CameraFleet", "lane", {"cameras": cameras, "detection": {"detectors": ["motion"]}}),
    )


async def test_pods_listen_on_the_documented_ports_and_no_others(site: Site, doors: Doors) -> None:
    with site.diary.step("installed") as step:
        await site.install()
        await site.apply_fleets(*_fleets(site))
        for kind, name in (("sf", "gate"), ("cf", "lane")):
            await site.condition(kind, name, 120, Ready=True, Progressing=False, Exposed=True)
        for component, namespace in (
            ("hub", SYSTEM), ("operator", SYSTEM), ("sensor-shard", SITE), ("camera-shard", SITE)
        ):  # fmt: skip
            doors.pods[component] = (await site.pods(component=component, namespace=namespace))[0]
        for component, pod in doors.pods.items():
            assert listening_ports(await site.cluster.tcp_sockets(pod)) == set(doors.documented(component)), component
        step.add_remark(f"{sum(len(doors.documented(component)) for component in doors.pods)} ports of four pods")


async def test_only_the_documented_ports_are_reachable(site: Site, doors: Doors) -> None:
    with site.diary.step("strangers knock at every port") as step:
        for component, pod in doors.pods.items():
            site.start(_open_door(site, pod, doors.arrived.setdefault(component, Counter())), f"door of {component}")
        for arrived in doors.arrived.values():
            await _until_arrived(arrived, "open")
        everybody = doors.open_to(EVERYBODY, PEOPLE, METRICS)
        await _reach(site, doors, dict.fromkeys((SITE, SYSTEM, ELSEWHERE), everybody), everybody)
        for pose, labels in POSES.items():
            reached = await knock(site.cluster, ELSEWHERE, IMAGE, doors.targets(), labels)
            assert _opened(reached) == everybody | doors.open_to(pose)
        assert [seen for seen in doors.arrived.values() if seen != Counter(["open"])] == []
        # Its own node reaches a pod, as Kubernetes demands: so something listened all the time.
        for component, pod in doors.pods.items():
            door = {f"{component}:{DOOR}": doors.targets()[f"{component}:{DOOR}"]}
            assert _opened(await _knock_from(site, pod["spec"]["nodeName"], door)) == set(door)
            await _until_arrived(doors.arrived[component], "open", "tcp", "udp")
        step.add_remark(f"{len(everybody)} of {len(doors.targets())} ports are open to everybody")


async def test_outside_the_cluster_only_node_ports_for_devices_and_people_are_open(site: Site, doors: Doors) -> None:
    with site.diary.step("this machine knocks") as step:
        services = [service for namespace in (SYSTEM, SITE)
                    for service in await site.cluster.items("services", "--namespace", namespace)]  # fmt: skip
        node_ports: dict[int, str] = {}
        for service in services:
            node_ports |= node_ports_of(service, doors.pods)
        assert set(node_ports.values()) <= doors.open_to(EVERYBODY, PEOPLE)
        devices = {f"sensor-shard:{port}" for port in LISTEN.values()}
        assert {"hub:8080", "hub:50052", *devices} <= set(node_ports.values())
        open_ports = {f"{site.entrance}:{port}" for port in node_ports}
        ports = {name.rpartition(":")[2] for name in doors.targets()}
        closed = {f"{site.entrance}:{port}" for port in ports} | set(doors.targets().values())
        assert await _connect(open_ports | closed) == open_ports
        step.add_remark(f"{len(open_ports)} node ports are open")


async def test_people_and_metrics_restrict_the_ports_of_the_hub(site: Site, doors: Doors) -> None:
    with site.diary.step("networkPolicy.people and metrics"):
        await site.upgrade(
            f"hub.persistence.storageClass={VOLUME}",
            rf"networkPolicy.people[0].namespaceSelector.matchLabels.kubernetes\.io/metadata\.name={ELSEWHERE}",
            "networkPolicy.metrics[0].podSelector.matchLabels.stranger=stranger",
        )
        (hub,) = await site.pods(component="hub", namespace=SYSTEM)
        assert hub["metadata"]["uid"] == doors.pods["hub"]["metadata"]["uid"]
        everybody = doors.open_to(EVERYBODY)
        admitted = {
            SITE: everybody,
            SYSTEM: everybody | doors.open_to(METRICS),  # the hub's namespace
            ELSEWHERE: everybody | doors.open_to(PEOPLE),
        }
        await _reach(site, doors, admitted, everybody)
        service = await site.cluster.existing("service", "embereye-hub", SYSTEM, 30)
        assert await _connect(f"{site.entrance}:{port}" for port in node_ports_of(service, doors.pods)) == set()


async def _reach(site: Site, doors: Doors, from_pods: Mapping[str, set[str]], from_node: set[str]) -> None:
    """Check that pods in each namespace, and a node without the pods, reach these ports alone."""
    targets = doors.targets()

    async def reach() -> dict[str, set[str]]:
        *pods, node = await asyncio.gather(
            *(knock(site.cluster, namespace, IMAGE, targets) for namespace in from_pods),
            _knock_from(site, f"{NAME}-control-plane", targets),
        )
        return {**dict(zip(from_pods, map(_opened, pods), strict=True)), "node": _opened(node)}

    # Policies take effect some seconds after they are declared.
    wanted = {**from_pods, "node": from_node}
    await until(reach, wanted.__eq__, f"reached {wanted}", 120)


async def _knock_from(site: Site, node: str, targets: Mapping[str, str]) -> dict[str, bool]:
    arguments = (f"{name}={address.replace(':', '/')}" for name, address in targets.items())
    out = await site.cluster.on_node(node, "bash", "-c", KNOCK_FROM_NODE, "bash", *arguments)
    return {name: state == "open" for name, state in (line.split() for line in out.splitlines())}


def _opened(reached: Mapping[str, bool]) -> set[str]:
    return {name for name, is_open in reached.items() if is_open}


async def _open_door(site: Site, pod: Json, arrived: Counter[str]) -> None:
    """Open a pod's door, and note what arrives there, until cancelled."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    async for line in site.cluster.lines("exec", name, "--namespace", namespace, "--", "python", "-c", OPEN_DOOR):
        arrived[line] += 1


async def _until_arrived(arrived: Counter[str], *wanted: str) -> None:
    await eventually(lambda: arrived == Counter(wanted), 60, lambda: f"{wanted} at the door, not {arrived}")


async def _connect(addresses: Iterable[str]) -> set[str]:
    """Try `addresses`, host:port, from this machine. Returns the open ones."""

    async def connect(address: str) -> bool:
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return True
        return False

    known = list(addresses)
    is_open = await asyncio.gather(*map(connect, known))
    return {address for number, address in enumerate(known) if is_open[number]}
