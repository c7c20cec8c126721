"""The texts of messages: what burns where, why, and what to do (pure)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from embereye.addons.notify.incidents import ACKNOWLEDGED, ESCALATED, FOLLOW_UP, OPEN, OVER, Delivery, Incident
from embereye.addons.notify.options import ALARM, CRITICAL, FAULT, PRE_ALARM
from embereye.addons.notify.readers import Reader
from embereye.units import SECOND

MAX_NAMES = 100  # incidents named in one message: services make a file of a message of more than 4,000 bytes
MAX_REASONS = 10  # incidents up to which each one's reason is given
WORDS = {ESCALATED: "ESCALATED", CRITICAL: "CRITICAL ALARM", ALARM: "ALARM", PRE_ALARM: "Pre-alarm", FAULT: "Fault",
         ACKNOWLEDGED: "Acknowledged", OVER: "Over"}  # fmt: skip
ORDER = tuple(WORDS)
EARLIER = " (earlier)"


@dataclass(frozen=True)
class Message:
    """A message for people, on any service."""

    title: str
    body: str
    kind: str = "failure"  # in Apprise's words: failure, warning, success or info
    still: bytes = b""  # JPEG; empty: none
    link: str = ""  # that acknowledges or confirms; '': none
    code: str = ""  # that does the same by a reply, instead of the link; '': none
    console: str = ""  # address of the console; '': unknown
    versions: "Mapping[Reader, Message] | None" = None  # for readers with limits; None: it is for them, too

    def version_for(self, reader: Reader) -> "Message | None":
        """The message as `reader` gets it; None if nothing in it is for them."""
        return self if self.versions is None or not reader.is_limited else self.versions.get(reader)

    @property
    def verb(self) -> str:
        """The word for what its link does."""
        return "Confirm" if self.kind == "info" else "Acknowledge"

    @property
    def text(self) -> str:
        """The body with its links, or with the code for a reply."""
        links = [f"{self.verb}: {self.link}"] if self.link else []
        links = [f"Reply {self.code} to {self.verb.lower()}."] if self.code else links
        links += [f"Console: {self.console}"] if self.console else []
        return "\n".join([self.body, *([""] if links else []), *links])


@dataclass(frozen=True)
class News:
    """An incident and the delivery about it."""

    incident: Incident
    delivery: Delivery


def compose(
    news: Sequence[News], still_open: Sequence[Incident], now: datetime, *, still: bytes, link: str, console: str
) -> Message:
    """Write one message about all `news`.

    `still_open` are incidents that the route got before and nobody has acknowledged. In a storm, the message names
    them too. `now` is in the hub's time zone.
    """
    latest: dict[str, News] = {}
    for each in news:
        latest[each.incident.key] = each
    groups: dict[str, list[Incident]] = {}
    for each in latest.values():
        groups.setdefault(_group(each), []).append(each.incident)
    worst = min(groups, key=ORDER.index)
    fires = groups.get(worst, [])
    added = [incident for incident in still_open if incident.key not in latest and incident.occasion == worst]
    if len(latest) > 1 and added:
        groups[worst] = [*fires, *added]
    before = {incident.key for incident in added}
    lines = [line for group in sorted(groups, key=ORDER.index) for line in _lines(group, groups[group], before, now)]
    waited = [_waited(each, now) for each in latest.values() if each.delivery.step > 0 or each.delivery.round > 0]
    if waited and worst in {CRITICAL, ALARM, PRE_ALARM}:
        lines.append(
            f"Nobody has acknowledged for {max(waited)} min." if max(waited) else "Nobody has acknowledged yet."
        )
    kind = {ESCALATED: "failure", CRITICAL: "failure", ALARM: "failure", PRE_ALARM: "warning", FAULT: "warning"}.get(
        worst, "success"
    )
    shown = groups[worst]
    place = shown[0].title if len(shown) == 1 else f"{len(shown)} {'devices' if worst == FAULT else 'zones'}"
    if worst == FAULT and len(shown) == 1:
        place = f"{shown[0].device} in {shown[0].title}"
    return Message(f"{WORDS[worst]}: {place}", "\n".join(lines), kind, still, link=link, console=console)


def _group(each: News) -> str:
    """The heading for an incident: its news, unless somebody acknowledged it meanwhile."""
    news, state = each.delivery.news, each.incident.state
    if each.delivery.step == FOLLOW_UP or state == OPEN or (news == ESCALATED and state != OVER):
        return news
    return each.incident.state


def _waited(each: News, now: datetime) -> int:
    return max(0, int((now.timestamp() - each.incident.time_ns / SECOND) // 60))


def _lines(group: str, incidents: Sequence[Incident], before: Collection[str], now: datetime) -> list[str]:
    """The lines about all incidents of one group; those with the keys `before` were in an earlier message."""
    if len(incidents) == 1:
        return [*_single(group, incidents[0], now)]
    lines = [f"{WORDS[group]} in {len(incidents)} places:"]
    for incident in incidents[:MAX_NAMES]:
        name = f"{incident.title} {incident.device}" if incident.device else incident.title
        reason = f": {incident.why}" if len(incidents) <= MAX_REASONS and group not in {ACKNOWLEDGED, OVER} else ""
        lines.append(f"- {name}{EARLIER if incident.key in before else ''}{reason}")
    if len(incidents) > MAX_NAMES:
        lines.append(f"and {len(incidents) - MAX_NAMES} more")
    return lines


def _single(group: str, incident: Incident, now: datetime) -> list[str]:
    began = datetime.fromtimestamp(incident.time_ns / SECOND, now.tzinfo)
    since = f"{began:%H:%M:%S}" if began.date() == now.date() else f"{began:%a %d %b %H:%M:%S}"
    where = f"{incident.device} in {incident.title}" if incident.device else incident.title
    if group == ACKNOWLEDGED:
        return [f"{where}: acknowledged by {incident.who or 'somebody'}.", f"It began at {since}."]
    if group == OVER:
        by = f" Ended by {incident.who}." if incident.who else ""
        return [f"{where}: {'the fault has cleared' if incident.device else 'over'}.{by}", f"It began at {since}."]
    return [f"{where}: {incident.why}", f"Since {since}."]
