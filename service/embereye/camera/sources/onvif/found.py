"""The information about a camera that answered a probe or was named."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from embereye.camera.sources.onvif.client import SERVICE
from embereye.wire.onvif.discovery import Match
from embereye.wire.onvif.media import Profile


@dataclass(frozen=True)
class FoundCamera:
    """One device; `problem` says for people why its `profiles` are unknown."""

    source: str  # onvif://HOST[:PORT][/PATH]
    name: str = ""
    location: str = ""
    maker: str = ""  # manufacturer and model
    serial: str = ""
    profiles: Sequence[Profile] = ()
    problem: str = ""
    refused: bool = False  # its credentials were missing or wrong
    authenticated: bool = False  # it was asked with credentials

    def with_problem(self, problem: str, *, refused: bool = False) -> "FoundCamera":
        """Return this camera with `problem`, because nothing else is known."""
        return replace(self, problem=problem, refused=refused)


def located(match: Match, sender: str) -> FoundCamera | None:
    """Return the camera that answered from the address `sender`; None if none of its addresses can be used.

    Only `sender` is contacted, because an answer could name any host.
    """
    parts = [urlsplit(address) for address in match.addresses]
    same_host = [part for part in parts if part.hostname == sender]
    chosen = next((part for part in same_host or parts if part.scheme == "http" or part.port in {None, 443}), None)
    if chosen is None:
        return None
    port = chosen.port or (443 if chosen.scheme == "https" else None)
    authority = sender if port in {None, 80} else f"{sender}:{port}"
    path = "" if chosen.path in {"", "/", SERVICE} else chosen.path
    return FoundCamera(f"onvif://{authority}{path}", match.name, match.location, match.hardware)
