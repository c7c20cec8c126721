"""Choice of the stream to analyse or record, with the reason.

`OnvifSource` asks at every connection. A declared profile is used as it is. Otherwise the choice is among the decodable
profiles of the first video source: fast ones, if there are any, and of these the cheapest to decode that has enough
pixels, or else the largest. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.onvif.wanted import VIDEO
from embereye.units import listed
from embereye.wire.onvif.media import Profile
from embereye.wire.rtsp.messages import printable

# Detection uses 160 pixels, and more at suspicious places: a flame that is 3 % of this wide has 15 pixels.
DETAIL = 480  # pixels of the long side
# Relative cost of decoding a pixel. JPEG is decoded at a quarter of its size, and unanalysed frames are not decoded.
COSTS = {"JPEG": 0.5, "H264": 1.0, "H265": 1.4}
_LISTED = 8  # names in an error, at most


@dataclass(frozen=True)
class Choice:
    """A profile, and the reason for its choice, for people."""

    profile: Profile
    why: str


def choose_watched(profiles: Sequence[Profile], wanted: str, least_rate: float) -> Choice | None:
    """Choose the profile to analyse: the one named `wanted`, or the cheapest with enough detail.

    A profile with fewer than `least_rate` frames/s is chosen only if there is no other. Returns None if no profile has
    decodable video. Raises SourceError if `wanted` does not exist.
    """
    if wanted:
        return Choice(_named(profiles, wanted), "as declared")
    usable = [profile for profile in profiles if profile.encoding in COSTS]
    if not usable:
        return None
    sources = list(dict.fromkeys(profile.source for profile in usable))
    usable = [profile for profile in usable if profile.source == sources[0]]
    many = (
        f"; from the first of {len(sources)} video sources, set streams.detect to use another"
        if len(sources) > 1
        else ""
    )
    fast = [profile for profile in usable if not profile.rate or profile.rate >= least_rate]
    candidates = fast or usable
    clear = [profile for profile in candidates if profile.side >= DETAIL]
    if clear:
        chosen = min(clear, key=lambda profile: COSTS[profile.encoding] * profile.width * profile.height)
        why = f"the cheapest of {len(usable)} with at least {DETAIL} pixels"
    else:
        chosen = max(candidates, key=lambda profile: (profile.width * profile.height, -COSTS[profile.encoding]))
        why = f"the largest of {len(usable)}, none has {DETAIL} pixels"
    slow = "" if fast else f"; it sends fewer than {least_rate:g} frames/s"
    return Choice(chosen, why + slow + many)


def choose_recorded(profiles: Sequence[Profile], wanted: str) -> Choice:
    """Choose the profile named `wanted` for clips; raise SourceError if it cannot be recorded."""
    chosen = _named(profiles, wanted)
    if chosen.encoding and chosen.encoding not in VIDEO:
        raise SourceError(f"ONVIF: profile {chosen}: cannot be recorded. Choose an H.264 or H.265 profile")
    return Choice(chosen, "as declared")


def largest(profiles: Sequence[Profile], source: str) -> Profile | None:
    """Return the largest recordable profile of the video source `source`, or None."""
    usable = [profile for profile in profiles if profile.encoding in VIDEO and profile.source == source]
    return max(usable, key=lambda profile: (profile.width * profile.height, profile.rate), default=None)


def _named(profiles: Sequence[Profile], wanted: str) -> Profile:
    for matches in (
        [profile for profile in profiles if profile.token == wanted],
        [profile for profile in profiles if profile.name == wanted],
        [profile for profile in profiles if profile.name.casefold() == wanted.casefold()],
    ):
        if matches:
            return matches[0]
    names = listed([f'"{printable(profile.name)}"' for profile in profiles], _LISTED) or "none"
    raise SourceError(f'ONVIF: the camera has no profile "{printable(wanted)}", only {names}')
