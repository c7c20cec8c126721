"""A kind cluster, used by kubectl, helm and docker with a separate kubeconfig.

`connect` brings the cluster up, or uses the one that runs. Everything goes through the command line tools, as for
a user; each command and its duration are in the diary, and a failed one raises CommandError. Nodes are containers: they
are powered off by docker, and faults run commands inside them.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.eventually import eventually
from harness.records.diary import Diary

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "e2e" / "cluster"
NAME = "embereye"
RAW_CHAINS = ("PREROUTING", "OUTPUT")  # iptables chains that see all packets, of pods and of the node
Json = dict[str, Any]
T = TypeVar("T")


class CommandError(Exception):
    """A command failed. The message has the command and its output."""


@dataclass(frozen=True)
class Result:
    """A command's exit code and output."""

    code: int
    out: str
    err: str


async def execute(command: Sequence[str | Path], *, stdin: str = "", limit: float = 120) -> Result:
    """Run `command`. It is killed after `limit` seconds and when the caller is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(limit):
            out, err = await process.communicate(stdin.encode() if stdin else None)
    except TimeoutError:
        return Result(124, "", f"killed after {limit:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Result(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


async def script(name: str, *arguments: str, limit: float = 3600) -> str:
    """Run a script of e2e/cluster and return its last line of output. Raises CommandError."""
    result = await execute([SCRIPTS / name, *arguments], limit=limit)
    if result.code:
        raise CommandError(f"e2e/cluster/{name}: {result.err.strip()}")
    return result.out.strip().splitlines()[-1] if result.out.strip() else ""


class Cluster:
    """A cluster. Every command is written to the diary."""

    def __init__(self, diary: Diary, folder: Path, kubeconfig: Path) -> None:
        """`folder` holds kubectl and helm."""
        self.diary = diary
        self._folder = folder
        self.kubeconfig = kubeconfig

    @classmethod
    async def connect(cls, diary: Diary) -> "Cluster":
        """Connect to the cluster of e2e/cluster/up, which is brought up if necessary."""
        folder = Path(await script("binaries", "kubectl", "helm"))
        kubeconfig = Path(await script("up", NAME))
        return cls(diary, folder, kubeconfig)

    # --- kubectl and helm ---

    async def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, limit: float = 120) -> str:
        """Run kubectl and return its output. Raises CommandError if it fails and `check` is set."""
        return await self._tool("kubectl", arguments, stdin, check=check, limit=limit)

    async def helm(self, *arguments: str, limit: float = 180) -> str:
        """Run helm and return its output. Raises CommandError if it fails."""
        return await self._tool("helm", arguments, "", check=True, limit=limit)

    async def _tool(self, tool: str, arguments: Sequence[str], stdin: str, *, check: bool, limit: float) -> str:
        started = time.monotonic()
        command = [str(self._folder / tool), "--kubeconfig", str(self.kubeconfig), *arguments]
        result = await execute(command, stdin=stdin, limit=limit)
        text = f"{' '.join(arguments)[:300]} ({time.monotonic() - started:.1f} s)"
        if result.code:
            text += f": {result.err.strip()[:1000]}"
        self.diary.note(tool, text, "bad" if result.code and check else "info")
        if result.code and check:
            raise CommandError(f"{tool} {' '.join(arguments)}: {result.err.strip() or result.out.strip()}")
        return result.out

    async def apply(self, *manifests: Json) -> None:
        """Apply manifests, all at once."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        await self.kubectl("apply", "--server-side", "--filename", "-", stdin=json.dumps(document))

    async def get(self, *arguments: str) -> Json | None:
        """Read an object or a list from the API server. Returns None if it does not exist."""
        out = await self.kubectl("get", *arguments, "--output", "json", "--ignore-not-found", check=False)
        return json.loads(out) if out.strip() else None

    async def items(self, *arguments: str) -> list[Json]:
        """The objects of a list."""
        items: list[Json] = ((await self.get(*arguments)) or {}).get("items", [])
        return items

    async def existing(self, kind: str, name: str, namespace: str, limit: float) -> Json:
        """Wait up to `limit` seconds for an object to appear."""
        appeared = await until(
            lambda: self.get(kind, name, "--namespace", namespace), bool, f"{kind} {namespace}/{name}", limit
        )
        return appeared or {}

    async def watch(self, *arguments: str) -> AsyncIterator[Json]:
        """Yield every state of the objects that the API server reports, until kubectl ends."""
        command = [str(self._folder / "kubectl"), "--kubeconfig", str(self.kubeconfig), "get", *arguments]
        process = await asyncio.create_subprocess_exec(
            *command, "--watch", "--output", "json",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=1 << 24,
        )  # fmt: skip
        decoder, text = json.JSONDecoder(), ""
        try:
            assert process.stdout
            while data := await process.stdout.read(1 << 16):
                text += data.decode(errors="replace")
                while (text := text.lstrip()) and text[0] == "{":
                    try:
                        document, end = decoder.raw_decode(text)
                    except ValueError:
                        break  # the rest is still to come
                    text = text[end:]
                    yield document
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def lines(self, *arguments: str) -> AsyncIterator[str]:
        """Yield the lines that a kubectl command prints, until it ends."""
        command = [str(self._folder / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, limit=1 << 20,
        )  # fmt: skip
        try:
            assert process.stdout
            async for line in process.stdout:
                yield line.decode(errors="replace").rstrip("\n")
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    # --- nodes ---

    async def nodes(self) -> dict[str, str]:
        """The workers' names → their addresses on the Docker bridge."""
        workers = await self.items("nodes", "--selector", "!node-role.kubernetes.io/control-plane")
        return {node["metadata"]["name"]: _address(node) for node in workers}

    async def entrance(self) -> str:
        """The address of the control plane, which is never drained. NodePorts are dialled here."""
        nodes = await self.items("nodes", "--selector", "node-role.kubernetes.io/control-plane")
        return _address(nodes[0])

    async def on_node(self, node: str, *command: str, check: bool = True) -> str:
        """Run a command in a node's container."""
        result = await execute(["docker", "exec", node, *command])
        self.diary.note("docker", f"exec {node} {' '.join(command)[:200]}", "bad" if result.code and check else "info")
        if result.code and check:
            raise CommandError(f"docker exec {node} {' '.join(command)}: {result.err.strip()}")
        return result.out

    async def power_off(self, node: str) -> int:
        """Freeze a node with everything on it. Returns when, as kill_container does.

        The kernel of a frozen node would still acknowledge packets, so its network is cut off first.
        """
        started_ns = time.time_ns()
        await self.on_node(node, "sh", "-c", " && ".join(f"iptables -t raw -I {chain} -j DROP" for chain in RAW_CHAINS))
        await self._docker("pause", node)
        self.diary.note("fault", f"{node} is powered off", "bad", started_ns)
        return started_ns

    async def pause(self, node: str) -> None:
        """Freeze a node's processes. Its kernel still answers packets."""
        await self._docker("pause", node)
        self.diary.note("fault", f"{node} is paused", "bad")

    async def power_on(self, node: str) -> None:
        """Resume a node that was powered off or paused."""
        if "true" in await self._docker("inspect", "--format", "{{.State.Paused}}", node):
            await self._docker("unpause", node)
            back = "; ".join(f"iptables -t raw -D {chain} -j DROP" for chain in RAW_CHAINS)
            await self.on_node(node, "sh", "-c", back, check=False)  # a node that was only paused has no such rules
            self.diary.note("fault", f"{node} is powered on", "good")

    async def _docker(self, *arguments: str) -> str:
        result = await execute(["docker", *arguments])
        if result.code:
            raise CommandError(f"docker {' '.join(arguments)}: {result.err.strip()}")
        return result.out

    async def kill_container(self, pod: Json) -> int:
        """Kill -9 the process of a pod's only container. Returns when, in nanoseconds since the epoch."""
        node, pid = await self._process(pod)
        killed_ns = time.time_ns()
        await self.on_node(node, "kill", "-9", pid)
        self.diary.note("fault", f"kill -9 of {pod['metadata']['name']}, process {pid} on {node}", "bad", killed_ns)
        return killed_ns

    async def send_signal(self, pod: Json, name: str) -> None:
        """Send the signal `name`, such as STOP, to the process of a pod's only container."""
        node, pid = await self._process(pod)
        await self.on_node(node, "kill", f"-{name}", pid)
        self.diary.note("fault", f"kill -{name} of {pod['metadata']['name']}, process {pid} on {node}", "bad")

    async def exhaust_memory(self, pod: Json) -> None:
        """Use up the memory of a pod's only container until the kernel kills its process."""
        node, pid = await self._process(pod)
        await self.on_node(node, "sh", "-c", _EXHAUST, "sh", pid)
        self.diary.note("fault", f"out of memory: {pod['metadata']['name']}, process {pid} on {node}", "bad")

    async def tcp_sockets(self, pod: Json) -> str:
        """The kernel's tables of a pod's TCP sockets, as in /proc/net/tcp."""
        node, pid = await self._process(pod)
        return await self.on_node(node, "cat", f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6")

    async def _process(self, pod: Json) -> tuple[str, str]:
        """The node and the process id of a pod's only container."""
        node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        tasks = await self.on_node(node, "ctr", "--namespace", "k8s.io", "tasks", "list")
        pids = [line.split()[1] for line in tasks.splitlines() if line.startswith(container)]
        if len(pids) != 1:
            raise CommandError(f"{node} runs no task of container {container}, pod {name}")
        return node, pids[0]

    async def neighbour(self) -> str:
        """The machine's address on the nodes' network, where pods reach servers outside the cluster."""
        node = next(iter(await self.nodes()))
        form = "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}"
        return (await self._docker("inspect", "--format", form, node)).strip()


# Runs in the container's control group, version 1 or 2. The kernel kills the container's process first.
_EXHAUST = """
pid=$1
path=$(sed -n 's/^[0-9]*:memory://p' /proc/$pid/cgroup)
if [ -n "$path" ]; then group=/sys/fs/cgroup/memory$path
else group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$pid/cgroup); fi
echo 1000 >/proc/$pid/oom_score_adj
sh -c 'echo $$ >"$1/cgroup.procs" && exec tail /dev/zero' sh "$group" &
eater=$!
for _ in $(seq 300); do
  [ -d /proc/$pid ] || break
  sleep 0.1
done
kill -9 $eater 2>/dev/null
[ ! -d /proc/$pid ]
"""


def _address(node: Json) -> str:
    return str(next(entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"))


async def until(
    ask: Callable[[], Awaitable[T]], satisfied: Callable[[T], object], goal: str, limit: float, period: float = 1.0
) -> T:
    """Ask until the answer satisfies. Raises AssertionError with the last answer after `limit` seconds."""
    seen: list[T] = []

    async def is_satisfied() -> object:
        seen[:] = [await ask()]
        return satisfied(seen[0])

    await eventually(is_satisfied, limit, lambda: f"{goal}, last seen: {str(seen)[:500]}", period)
    return seen[0]


def node_ports(service: Mapping[str, Any]) -> dict[str, int]:
    """The node ports of a Service by the names of its ports."""
    return {port["name"]: port["nodePort"] for port in service["spec"]["ports"] if "nodePort" in port}
