"""A CameraFleet, as text, of cameras that were found."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embereye.camera.sources.onvif.choice import choose_watched, largest
from embereye.camera.sources.onvif.found import FoundCamera
from embereye.units import counted
from embereye.wire.onvif.media import Profile
from embereye.wire.rtsp.messages import printable
from embereye_operator.api.cameras import FleetRate
from embereye_operator.api.shared import API_VERSIONS
from embereye_operator.decide.manifests.names import LABEL_ALLOWED

_NAMEABLE = re.compile(r"[^:/\x00-\x1f]{1,64}")  # what `streams` takes for a profile
_TOLD = 6  # profiles in a comment


@dataclass(frozen=True)
class Naming:
    """What the fleet is called, and what is the same for all of its cameras."""

    name: str = "cameras"
    namespace: str = "default"
    zone: str = "unassigned"
    secret: str = "cameras"


def fleet_text(cameras: Sequence[FoundCamera], naming: Naming) -> str:
    """A CameraFleet of `cameras`, in YAML with comments: ready to be applied, and without a password."""
    count = counted(len(cameras), "camera")
    kubectl, secret = f"#   kubectl --namespace {naming.namespace}", f"secret generic {naming.secret}"
    first = [
        "#",
        "# This is to be made first, with the cameras' user and password; the label lets fleets use it:",
        f"{kubectl} create {secret} --from-literal=username=USER --from-file=password=FILE",
        f"{kubectl} label secret {naming.secret} {LABEL_ALLOWED}=true",
    ]
    lines = [
        f"# {count} found by `embereye discover`. Ids are made of what they call themselves;",
        f'# all are in the zone "{naming.zone}": give each the zone whose alarm it belongs to.',
        *(first if any(map(_guarded, cameras)) else ()),
        f"apiVersion: {API_VERSIONS[-1]}",
        "kind: CameraFleet",
        "metadata:",
        f"  name: {_quoted(naming.name)}",
        f"  namespace: {_quoted(naming.namespace)}",
        "spec:",
    ]
    entries = list(_entries(cameras, naming))
    return "\n".join([*lines, "  cameras:" if entries else "  cameras: []", *entries]) + "\n"


def _entries(cameras: Sequence[FoundCamera], naming: Naming) -> Iterator[str]:
    taken: set[str] = set()
    for camera in cameras:
        sources = list(dict.fromkeys(profile.source for profile in camera.profiles if profile.encoding)) or [""]
        for source in sources:
            name = _id(camera, taken)
            yield f"    - id: {_quoted(name)}"
            yield f"      zone: {_quoted(naming.zone)}"
            if location := printable(camera.location or camera.name, 200):
                yield f"      location: {_quoted(location)}"
            yield f"      source: {_quoted(camera.source)}"
            yield from _about(camera, [of for of in camera.profiles if of.source == source], several=len(sources) > 1)
            if _guarded(camera):
                yield f"      credentialsRef: {{name: {_quoted(naming.secret)}}}"


def _guarded(camera: FoundCamera) -> bool:
    """Whether it needs credentials, as far as is known."""
    return camera.proven or bool(camera.problem)


def _about(camera: FoundCamera, profiles: Sequence[Profile], *, several: bool) -> Iterator[str]:
    """What is known of a camera as comments, and which of its `profiles` are for what."""
    told = f"{printable(camera.maker)} {printable(camera.serial)}".strip()
    if told:
        yield f"      # {told}"
    if camera.problem:
        yield f"      # its profiles are not known: {printable(camera.problem, 200)}"
        return
    yield f"      # profiles: {', '.join(map(str, profiles[:_TOLD]))}" + (", …" if len(profiles) > _TOLD else "")
    choice = choose_watched(profiles, "", FleetRate().min)
    if choice is None:
        yield "      # none of them is a stream that can be played: its snapshots are fetched"
        return
    yield f"      # looked at is {choice.profile}: {choice.why}"
    streams = {}
    if several:
        streams["detect"] = _handle(choice.profile, profiles)
    recorded = largest(profiles, choice.profile.source)
    if recorded and recorded != choice.profile:
        streams["record"] = _handle(recorded, profiles)
    if streams and all(streams.values()):
        yield f"      streams: {{{', '.join(f'{key}: {_quoted(value)}' for key, value in streams.items())}}}"


def _handle(profile: Profile, profiles: Sequence[Profile]) -> str:
    """What names `profile` alone, its name rather than its token; '' where neither can stand in a fleet."""
    names = [other.name.casefold() for other in profiles]
    candidates = [profile.token]
    if names.count(profile.name.casefold()) == 1 and profile.name not in {other.token for other in profiles}:
        candidates.insert(0, profile.name)
    return next((one for one in candidates if _NAMEABLE.fullmatch(one) and one.isprintable()), "")


def _id(camera: FoundCamera, taken: set[str]) -> str:
    host = camera.source.partition("://")[2]
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", camera.name or host).strip("-._").lower()[:50] or "camera"
    name, number = words, 1
    while name in taken:
        number += 1
        name = f"{words}-{number}"
    taken.add(name)
    return name


def _quoted(text: str) -> str:
    """`text` in double quotes, which YAML reads as JSON does."""
    return json.dumps(text, ensure_ascii=False)
