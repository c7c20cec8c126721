"""Why a pod that there is to be does not run, by what Kubernetes tells of it; says it with the remedy."""

from collections.abc import Mapping
from typing import Any

IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
CHART = "image.repository and image.tag"
FLEET = f"the fleet's spec.image, or the chart's {CHART}"
UNSTARTED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


def why_refused(deployment: Mapping[str, Any]) -> str:
    """Why no pod is made for `deployment`, such as a policy or a quota; '' where it is."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return f"its pod is refused: {condition.get('message') or condition.get('reason')}"
    return ""


def why_pod_waits(pod: Mapping[str, Any], image: str = CHART) -> str:
    """Why `pod` does not run; '' where nothing is known that is in its way. `image` is where people set its image."""
    name, status = name_of(pod), pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason in IMAGE:
            return (
                f"its pod {name} waits for image {container.get('image')} ({reason}): load it into the nodes, "
                f"or push it to a registry and set {image}"
            )
        if reason == "CrashLoopBackOff":
            return f"its pod {name} ends again and again{_how(container)}: kubectl logs --previous says why"
        if reason in UNSTARTED:
            return f"its pod {name} cannot be started: {waiting.get('message') or reason}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"its pod {name} cannot be placed: {condition.get('message') or condition.get('reason')}"
    if status.get("phase") == "Pending":
        return f"its pod {name} is being created on node {pod['spec'].get('nodeName') or 'none yet'}"
    return ""


def name_of(pod: Mapping[str, Any]) -> str:
    """Namespace and name."""
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def _how(container: Mapping[str, Any]) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    told = [ended["reason"]] if ended.get("reason") not in {None, "Error", "Completed"} else []
    told += [f"exit code {ended['exitCode']}"] if "exitCode" in ended else []
    return f" ({', '.join(told)})" if told else ""
