"""Save the records of a run: logs, events, objects and metrics of the cluster."""

import json
from pathlib import Path

from harness.cluster.cluster import Cluster, Json

METRICS = {"operator": 8081, "hub": 9100, "shard": 9100}  # container → port of its metrics page


async def save_records(cluster: Cluster, namespaces: list[str]) -> None:
    """Write pods' logs, events, objects and metrics pages into the run's folder. Errors are ignored."""
    folder = cluster.diary.folder
    everything = await cluster.kubectl("get", "all", "--all-namespaces", "--output", "yaml", check=False)
    (folder / "all.yaml").write_text(everything)
    fleets = await cluster.kubectl("get", "sf,cf,cm,pvc,pv,pdb", "-A", "--output", "yaml", check=False)
    (folder / "fleets.yaml").write_text(fleets)
    events = await cluster.items("events", "--all-namespaces")
    lines = [
        f"{event.get('lastTimestamp') or event.get('eventTime') or ''} {event['metadata']['namespace']} "
        f"{event['involvedObject'].get('kind')}/{event['involvedObject'].get('name')} {event.get('reason')}: "
        f"{event.get('message', '')}"
        for event in events
    ]
    (folder / "events.txt").write_text("\n".join(sorted(lines)) + "\n")
    described = await cluster.kubectl("describe", "nodes", check=False)
    (folder / "nodes.txt").write_text(described)
    for namespace in namespaces:
        for pod in await cluster.items("pods", "--namespace", namespace):
            await save_pod(cluster, pod)


async def save_pod(cluster: Cluster, pod: Json) -> None:
    """Save the logs of a pod's containers, including their previous runs, and its metrics page."""
    folder = cluster.diary.folder
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    statuses = {status["name"]: status for status in pod["status"].get("containerStatuses", [])}
    for container in pod["spec"]["containers"]:
        logs = ["logs", "--namespace", namespace, name, "--container", container["name"], "--timestamps"]
        _write(folder / "logs" / f"{namespace}.{name}.log", await cluster.kubectl(*logs, check=False))
        if statuses.get(container["name"], {}).get("restartCount"):
            log = await cluster.kubectl(*logs, "--previous", check=False)
            _write(folder / "logs" / f"{namespace}.{name}.previous.log", log)
        if port := METRICS.get(container["name"]):
            path = f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"
            page = await cluster.kubectl("get", "--raw", path, check=False, limit=10)
            _write(folder / "metrics" / f"{namespace}.{name}.txt", page)
    _write(folder / "pods" / f"{namespace}.{name}.json", json.dumps(pod.get("status", {}), indent=1))


def _write(path: Path, text: str) -> None:
    if text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
