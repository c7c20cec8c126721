"""Explain why a pod does not run, from the state of Kubernetes' objects, with the remedy.

Callers pass the latest Deployment or pod, and get the first known reason: the image, a crash, a failed start, the
scheduler. Messages of Kubernetes are quoted, and the remedy names the setting that the reader can change. The sentence
goes into a fleet's status, or into the reason why a hub is away.
"""

from collections.abc import Mapping
from typing import Any

IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
CHART = "image.repository and image.tag"
FLEET = f"the fleet's spec.image, or the chart's {CHART}"
UNSTARTED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


def why_refused(deployment: Mapping[str, Any]) -> str:
    """Return the reason, such as a policy or a quota, why `deployment` gets no pod; '' if it does."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return f"its pod is refused: {condition.get('message') or condition.get('reason')}"
    return ""


def why_pod_waits(pod: Mapping[str, Any], image: str = CHART) -> str:
    """Return the reason why `pod` does not run; '' if none is known. `image` names the setting of its image."""
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
            return f"its pod {name} crashes repeatedly{_how(container)}: kubectl logs --previous shows why"
        if reason in UNSTARTED:
            return f"its pod {name} cannot be started: {waiting.get('message') or reason}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"its pod {name} cannot be placed: {condition.get('message') or condition.get('reason')}"
    if status.get("phase") == "Pending":
        return f"its pod {name} is being created on node {pod['spec'].get('nodeName') or '(none yet)'}"
    return ""


def name_of(pod: Mapping[str, Any]) -> str:
    """Return a pod's namespace and name."""
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def _how(container: Mapping[str, Any]) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    details = [ended["reason"]] if ended.get("reason") not in {None, "Error", "Completed"} else []
    details += [f"exit code {ended['exitCode']}"] if "exitCode" in ended else []
    return f" ({', '.join(details)})" if details else ""
