"""A kind cluster through its own tools: kubectl, helm and docker, with a kubeconfig of its own."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.records.diary import Diary

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "e2e" / "cluster"
NAME = "embereye"
RAW_CHAINS = ("PREROUTING", "OUTPUT")  # that all packets pass, of pods and of the node itself
Json = dict[str, Any]
T = TypeVar("T")


class CommandError(Exception):
    """A command failed; says which, and what it said."""


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


async def execute(command: Sequence[str | Path], *, stdin: str = "", limit: float = 120) -> Result:
    """Run `command` for at most `limit` seconds; it is killed past that, and when the caller is cancelled."""
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
        return Result(124, "", f"not within {limit:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Result(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


async def script(name: str, *arguments: str, limit: float = 3600) -> str:
    """Run a script of e2e/cluster; returns the last line it prints."""
    result = await execute([SCRIPTS / name, *arguments], limit=limit)
    if result.code:
        raise CommandError(f"e2e/cluster/{name}: {result.err.strip()}")
    return result.out.strip().splitlines()[-1] if result.out.strip() else ""


class Cluster:
    """One cluster. Every command goes into the diary."""

    def __init__(self, diary: Diary, folder: Path, kubeconfig: Path) -> None:
        """`folder` holds kubectl and helm."""
        self.diary = diary
        self._folder = folder
        self._kubeconfig = kubeconfig

    @classmethod
    async def connect(cls, diary: Diary) -> "Cluster":
        """The cluster that e2e/cluster/up brings up, or has brought up."""
        folder = Path(await script("binaries", "kubectl", "helm"))
        kubeconfig = Path(await script("up", NAME))
        return cls(diary, folder, kubeconfig)

    # --- kubectl and helm ---

    async def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, limit: float = 120) -> str:
        """The output of kubectl; CommandError where it fails and `check` is set."""
        return await self._tool("kubectl", arguments, stdin, check=check, limit=limit)

    async def helm(self, *arguments: str, limit: float = 180) -> str:
        """The output of helm; CommandError where it fails."""
        return await self._tool("helm", arguments, "", check=True, limit=limit)

    async def _tool(self, tool: str, arguments: Sequence[str], stdin: str, *, check: bool, limit: float) -> str:
        began = time.monotonic()
        command = [str(self._folder / tool), "--kubeconfig", str(self._kubeconfig), *arguments]
        result = await execute(command, stdin=stdin, limit=limit)
        text = f"{' '.join(arguments)[:300]} ({time.monotonic() - began:.1f} s)"
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
        """An object, or a list, as the API server has it; None where there is none."""
        out = await self.kubectl("get", *arguments, "--output", "json", "--ignore-not-found", check=False)
        return json.loads(out) if out.strip() else None

    async def items(self, *arguments: str) -> list[Json]:
        """The objects of a list."""
        found: list[Json] = ((await self.get(*arguments)) or {}).get("items", [])
        return found

    async def existing(self, kind: str, name: str, namespace: str, limit: float) -> Json:
        """An object that is about to appear."""
        found = await until(
            lambda: self.get(kind, name, "--namespace", namespace), bool, f"{kind} {namespace}/{name}", limit
        )
        return found or {}

    async def watch(self, *arguments: str) -> AsyncIterator[Json]:
        """Every state of the objects as the API server tells it, until cancelled; ends where kubectl does."""
        command = [str(self._folder / "kubectl"), "--kubeconfig", str(self._kubeconfig), "get", *arguments]
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

    # --- nodes ---

    async def nodes(self) -> dict[str, str]:
        """Nodes that pods may run on → their address on the Docker bridge."""
        found = await self.items("nodes", "--selector", "!node-role.kubernetes.io/control-plane")
        return {node["metadata"]["name"]: _address(node) for node in found}

    async def entrance(self) -> str:
        """The address of a node that is never drained: where NodePorts are dialled."""
        found = await self.items("nodes", "--selector", "node-role.kubernetes.io/control-plane")
        return _address(found[0])

    async def on_node(self, node: str, *command: str, check: bool = True) -> str:
        """Run a command in a node's container."""
        result = await execute(["docker", "exec", node, *command])
        self.diary.note("docker", f"exec {node} {' '.join(command)[:200]}", "bad" if result.code and check else "info")
        if result.code and check:
            raise CommandError(f"docker exec {node} {' '.join(command)}: {result.err.strip()}")
        return result.out

    async def power_off(self, node: str) -> int:
        """Freeze a node with all that runs on it; returns when, as kill_container.

        The kernel of a frozen node would go on acknowledging what it is sent: its network is cut off first.
        """
        began_ns = time.time_ns()
        await self.on_node(node, "sh", "-c", " && ".join(f"iptables -t raw -I {chain} -j DROP" for chain in RAW_CHAINS))
        await self._docker("pause", node)
        self.diary.note("fault", f"{node} is powered off", "bad", began_ns)
        return began_ns

    async def pause(self, node: str) -> None:
        """Let a node stand still with all that runs on it; its kernel goes on."""
        await self._docker("pause", node)
        self.diary.note("fault", f"{node} stands still", "bad")

    async def power_on(self, node: str) -> None:
        """Let a node go on, where it was powered off or paused."""
        if "true" in await self._docker("inspect", "--format", "{{.State.Paused}}", node):
            await self._docker("unpause", node)
            back = "; ".join(f"iptables -t raw -D {chain} -j DROP" for chain in RAW_CHAINS)
            await self.on_node(node, "sh", "-c", back, check=False)  # one that was paused alone has no such rules
            self.diary.note("fault", f"{node} is powered on", "good")

    async def _docker(self, *arguments: str) -> str:
        result = await execute(["docker", *arguments])
        if result.code:
            raise CommandError(f"docker {' '.join(arguments)}: {result.err.strip()}")
        return result.out

    async def kill_container(self, pod: Json) -> int:
        """Kill -9 the one process that a pod's only container runs; returns when, nanoseconds since the epoch."""
        node, pid = await self._process(pod)
        killed_ns = time.time_ns()
        await self.on_node(node, "kill", "-9", pid)
        self.diary.note("fault", f"kill -9 of {pod['metadata']['name']}, process {pid} on {node}", "bad", killed_ns)
        return killed_ns

    async def exhaust_memory(self, pod: Json) -> None:
        """Let something in a pod's only container take memory until the kernel kills its process for want of it."""
        node, pid = await self._process(pod)
        await self.on_node(node, "sh", "-c", _EXHAUST, "sh", pid)
        self.diary.note("fault", f"no memory is left to {pod['metadata']['name']}, process {pid} on {node}", "bad")

    async def _process(self, pod: Json) -> tuple[str, str]:
        """The node and the process of a pod's only container."""
        node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        tasks = await self.on_node(node, "ctr", "--namespace", "k8s.io", "tasks", "list")
        pids = [line.split()[1] for line in tasks.splitlines() if line.startswith(container)]
        if len(pids) != 1:
            raise CommandError(f"{node} runs no task of container {container}, pod {name}")
        return node, pids[0]

    async def neighbour(self) -> str:
        """Where pods reach what runs beside the cluster: the address of the machine itself on the nodes' network."""
        node = next(iter(await self.nodes()))
        form = "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}"
        return (await self._docker("inspect", "--format", form, node)).strip()


# In the container's own control group, of whichever version; its process is the first that the kernel takes.
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
    ask: Callable[[], Awaitable[T]], satisfied: Callable[[T], object], what: str, limit: float, period: float = 1.0
) -> T:
    """Ask until the answer satisfies; AssertionError with the last answer after `limit` seconds."""
    deadline = time.monotonic() + limit
    while True:
        answer = await ask()
        if satisfied(answer):
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit:g} s; last seen: {str(answer)[:500]}")
        await asyncio.sleep(period)


def node_ports(service: Mapping[str, Any]) -> dict[str, int]:
    """The node ports of a Service by the names of its ports."""
    return {port["name"]: port["nodePort"] for port in service["spec"]["ports"] if "nodePort" in port}
