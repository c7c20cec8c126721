"""The YAML text of a CameraFleet for discovered cameras.

`embereye discover` calls `fleet_text` with the cameras that answered. The YAML is written as text, because its comments
carry half of the information: profiles, problems, and the commands that create the Secret. Values are quoted as JSON,
which YAML reads as text.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from embereye.camera.sources.onvif.choice import choose_watched, largest
from embereye.camera.sources.onvif.found import FoundCamera
from embereye.units import counted, numbered
from embereye.wire.onvif.media import Profile
from embereye.wire.rtsp.messages import printable
from embereye_operator.api.cameras import FleetRate
from embereye_operator.api.shared import API_VERSIONS
from embereye_operator.decide.manifests.names import LABEL_ALLOWED

_NAMEABLE = re.compile(r"[^:/\x00-\x1f]{1,64}")  # a profile's name that `streams` accepts
_LISTED = 6  # profiles in a comment


@dataclass(frozen=True)
class Naming:
    """The fleet's name, and the settings shared by all its cameras."""

    name: str = "cameras"
    namespace: str = "default"
    zone: str = "unassigned"
    secret: str = "cameras"
    zones: Sequence[tuple[str, str]] = ()  # pattern with * and ? of names or locations, and zone; the first counts

    def zone_of(self, camera: FoundCamera) -> str:
        """The zone of `camera`, by its name or location; upper and lower case are the same."""
        names = [camera.name.casefold(), camera.location.casefold()]
        matching = (
            zone for pattern, zone in self.zones if any(fnmatchcase(name, pattern.casefold()) for name in names)
        )
        return next(matching, self.zone)


def fleet_text(cameras: Sequence[FoundCamera], naming: Naming) -> str:
    """Return a CameraFleet of `cameras` as commented YAML, ready to apply and without passwords."""
    count = counted(len(cameras), "camera")
    lines = [
        f"# {count} found by `embereye discover`. Ids are derived from the cameras' names;",
        f'# {"others" if naming.zones else "all"} are in the zone "{naming.zone}": '
        "give each the zone whose alarm it belongs to.",
        *(_secret_lines(naming) if any(map(_guarded, cameras)) else ()),
        *_head(naming),
    ]
    entries = list(_entries(cameras, naming))
    return "\n".join([*lines, "  cameras:" if entries else "  cameras: []", *entries]) + "\n"


def probed_text(name: str, maker: str, sources: Sequence[str], naming: Naming, *, guarded: bool) -> str:
    """Return a CameraFleet of one camera: `sources` are its stream to analyse, and the one to record, if any."""
    lines = [
        f"# {printable(maker) or 'A camera'}, found by `embereye camera probe`.",
        *(_secret_lines(naming) if guarded else ()),
        *_head(naming),
        "  cameras:",
        f"    - id: {_quoted(_id(name))}",
        f"      zone: {_quoted(naming.zone)}",
        f"      source: {_quoted(sources[0])}",
    ]
    if len(sources) > 1:
        lines.append(f"      streams: {{record: {_quoted(sources[1])}}}")
    if guarded:
        lines.append(f"      credentialsRef: {{name: {_quoted(naming.secret)}}}")
    return "\n".join(lines) + "\n"


def _secret_lines(naming: Naming) -> list[str]:
    """Return comments with the commands that create the Secret."""
    kubectl, secret = f"#   kubectl --namespace {naming.namespace}", f"secret generic {naming.secret}"
    return [
        "#",
        "# Create this first, with the cameras' user and password; the label lets fleets use it:",
        f"{kubectl} create {secret} --from-literal=username=USER --from-file=password=FILE",
        f"{kubectl} label secret {naming.secret} {LABEL_ALLOWED}=true",
        f"# With `embereye up` instead: embereye credentials set {naming.secret}",
    ]


def _head(naming: Naming) -> list[str]:
    return [
        f"apiVersion: {API_VERSIONS[-1]}",
        "kind: CameraFleet",
        "metadata:",
        f"  name: {_quoted(naming.name)}",
        f"  namespace: {_quoted(naming.namespace)}",
        "spec:",
    ]


def _entries(cameras: Sequence[FoundCamera], naming: Naming) -> Iterator[str]:
    ids: set[str] = set()
    for camera in cameras:
        sources = list(dict.fromkeys(profile.source for profile in camera.profiles if profile.encoding)) or [""]
        for source in sources:
            name = _id(camera.name or camera.source.partition("://")[2], ids)
            ids.add(name)
            yield f"    - id: {_quoted(name)}"
            yield f"      zone: {_quoted(naming.zone_of(camera))}"
            if location := printable(camera.location or camera.name, 200):
                yield f"      location: {_quoted(location)}"
            yield f"      source: {_quoted(camera.source)}"
            yield from _about(
                camera, [profile for profile in camera.profiles if profile.source == source], several=len(sources) > 1
            )
            if _guarded(camera):
                yield f"      credentialsRef: {{name: {_quoted(naming.secret)}}}"


def _guarded(camera: FoundCamera) -> bool:
    """True if the camera needs credentials, as far as is known."""
    return camera.authenticated or bool(camera.problem)


def _about(camera: FoundCamera, profiles: Sequence[Profile], *, several: bool) -> Iterator[str]:
    """Yield comments about a camera, and the use of its `profiles`."""
    maker = f"{printable(camera.maker)} {printable(camera.serial)}".strip()
    if maker:
        yield f"      # {maker}"
    if camera.problem:
        yield f"      # its profiles are unknown: {printable(camera.problem, 200)}"
        return
    yield f"      # profiles: {', '.join(map(str, profiles[:_LISTED]))}" + (", …" if len(profiles) > _LISTED else "")
    choice = choose_watched(profiles, "", FleetRate().min)
    if choice is None:
        yield "      # none of them is a playable stream: EmberEye fetches snapshots"
        return
    yield f"      # detection uses {choice.profile}: {choice.why}"
    streams = {}
    if several:
        streams["detect"] = _handle(choice.profile, profiles)
    recorded = largest(profiles, choice.profile.source)
    if recorded and recorded != choice.profile:
        streams["record"] = _handle(recorded, profiles)
    if streams and all(streams.values()):
        yield f"      streams: {{{', '.join(f'{key}: {_quoted(value)}' for key, value in streams.items())}}}"


def _handle(profile: Profile, profiles: Sequence[Profile]) -> str:
    """Return the name, or else the token, that identifies `profile` alone; '' if a fleet can contain neither."""
    names = [known.name.casefold() for known in profiles]
    candidates = [profile.token]
    if names.count(profile.name.casefold()) == 1 and profile.name not in {known.token for known in profiles}:
        candidates.insert(0, profile.name)
    return next((name for name in candidates if _NAMEABLE.fullmatch(name) and name.isprintable()), "")


def _id(text: str, ids: Collection[str] = ()) -> str:
    """Return an id made of `text` that is not among `ids`."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._").lower()[:50] or "camera"
    return numbered(words, ids)


def _quoted(text: str) -> str:
    """Return `text` in double quotes, which YAML reads as JSON does."""
    return json.dumps(text, ensure_ascii=False)
