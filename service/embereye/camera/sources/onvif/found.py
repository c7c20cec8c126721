"""What is known of a camera that answered a probe, or was named."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from embereye.camera.sources.onvif.client import SERVICE
from embereye.wire.onvif.discovery import Match
from embereye.wire.onvif.media import Profile


@dataclass(frozen=True)
class FoundCamera:
    """One device; `problem` says why its `profiles` are not known, for people."""

    source: str  # onvif://HOST[:PORT][/PATH]
    name: str = ""
    location: str = ""
    maker: str = ""  # manufacturer and model
    serial: str = ""
    profiles: Sequence[Profile] = ()
    problem: str = ""
    refused: bool = False  # for want of the right credentials
    proven: bool = False  # it was asked with credentials

    def with_problem(self, problem: str, *, refused: bool = False) -> "FoundCamera":
        """The same camera, of which `problem` is all that could be learnt."""
        return replace(self, problem=problem, refused=refused)


def located(match: Match, sender: str) -> FoundCamera | None:
    """The camera of an answer that came from the address `sender`; None where none of its addresses can be asked.

    Only `sender` itself is ever asked, whatever its answer names: that might be anybody.
    """
    parts = [urlsplit(address) for address in match.addresses]
    own = [part for part in parts if part.hostname == sender]
    chosen = next((part for part in own or parts if part.scheme == "http" or part.port in {None, 443}), None)
    if chosen is None:
        return None
    port = chosen.port or (443 if chosen.scheme == "https" else None)
    place = sender if port in {None, 80} else f"{sender}:{port}"
    path = "" if chosen.path in {"", "/", SERVICE} else chosen.path
    return FoundCamera(f"onvif://{place}{path}", match.name, match.location, match.hardware)
