"""Which of a camera's streams is looked at, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.onvif.wanted import VIDEO
from embereye.wire.onvif.media import Profile
from embereye.wire.rtsp.messages import printable

# Pictures are looked at with 160 pixels, suspicious places with more: a flame that is 3 % of this wide has 15 pixels.
DETAIL = 480  # pixels of the long side
# What decoding a pixel costs. JPEG is decoded at a quarter of its size, and what is not looked at, not at all.
COSTS = {"JPEG": 0.5, "H264": 1.0, "H265": 1.4}
_TOLD = 8  # names in an error


@dataclass(frozen=True)
class Choice:
    """A profile, and why it was chosen, for people."""

    profile: Profile
    why: str


def choose_watched(profiles: Sequence[Profile], wanted: str, least_rate: float) -> Choice | None:
    """The profile to look at: the one named `wanted`, else the one that costs least and shows enough.

    One that sends fewer than `least_rate` frames/s is chosen only where no other is there. None where no profile has
    video that can be decoded; SourceError where `wanted` is not among them.
    """
    if wanted:
        return Choice(_named(profiles, wanted), "as declared")
    usable = [profile for profile in profiles if profile.encoding in COSTS]
    if not usable:
        return None
    sources = list(dict.fromkeys(profile.source for profile in usable))
    usable = [profile for profile in usable if profile.source == sources[0]]
    many = f"; of the first of {len(sources)} video sources, streams.detect names another" if len(sources) > 1 else ""
    fast = [profile for profile in usable if not profile.rate or profile.rate >= least_rate]
    candidates = fast or usable
    clear = [profile for profile in candidates if profile.side >= DETAIL]
    if clear:
        chosen = min(clear, key=lambda one: COSTS[one.encoding] * one.width * one.height)
        why = f"of {len(usable)} the cheapest with at least {DETAIL} pixels"
    else:
        chosen = max(candidates, key=lambda one: (one.width * one.height, -COSTS[one.encoding]))
        why = f"of {len(usable)} the largest: none has {DETAIL} pixels"
    slow = "" if fast else f"; it sends fewer than {least_rate:g} frames/s"
    return Choice(chosen, why + slow + many)


def choose_recorded(profiles: Sequence[Profile], wanted: str) -> Choice:
    """The profile named `wanted`, of which clips are kept; SourceError where it cannot be."""
    chosen = _named(profiles, wanted)
    if chosen.encoding and chosen.encoding not in VIDEO:
        raise SourceError(f"ONVIF: profile {chosen} cannot be recorded as it comes: name one of H264 or H265")
    return Choice(chosen, "as declared")


def largest(profiles: Sequence[Profile], source: str) -> Profile | None:
    """The largest profile of the video source `source` that can be recorded as it comes; None where there is none."""
    usable = [profile for profile in profiles if profile.encoding in VIDEO and profile.source == source]
    return max(usable, key=lambda one: (one.width * one.height, one.rate), default=None)


def _named(profiles: Sequence[Profile], wanted: str) -> Profile:
    for found in (
        [one for one in profiles if one.token == wanted],
        [one for one in profiles if one.name == wanted],
        [one for one in profiles if one.name.casefold() == wanted.casefold()],
    ):
        if found:
            return found[0]
    names = ", ".join(f'"{printable(one.name)}"' for one in profiles[:_TOLD]) or "none"
    more = f" and {len(profiles) - _TOLD} more" if len(profiles) > _TOLD else ""
    raise SourceError(f'ONVIF: the camera has no profile "{printable(wanted)}", only {names}{more}')
