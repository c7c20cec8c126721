"""The source of a sensor that publishes its readings, as an assignment carries it: a URL.

`mqtts://BROKER/TOPIC?template=zigbee2mqtt&deadline=4200&field.smoke=alarm.state%3DON`. The operator encodes it from the
fleet, and the shard parses it. It contains no password. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from embereye.units import SECOND

_FIELD = "field."  # prefix of a quantity


@dataclass(frozen=True)
class SensorSource:
    """The broker and topic of a sensor, and the way to read its messages."""

    broker: str  # scheme://HOST[:PORT]
    topic: str
    template: str = "plain"
    fields: Mapping[str, str] = field(default_factory=dict)  # quantity → field
    deadline_ns: int = 0  # nanoseconds that it may go without a check-in; 0: the fleet's deadline
    interval_ns: int = 0  # nanoseconds between two readings of a source that is polled; 0: its default

    @property
    def scheme(self) -> str:
        """The broker's scheme, by which the shard finds the code that reads it."""
        return self.broker.partition(":")[0]


def encode_source(source: SensorSource) -> str:
    """Write `source` as a URL; equal sources give equal texts."""
    words = {"template": source.template, "deadline": str(source.deadline_ns // SECOND)}
    if source.interval_ns:
        words["interval"] = str(source.interval_ns // SECOND)
    words |= {f"{_FIELD}{name}": text for name, text in sorted(source.fields.items())}
    return f"{source.broker.rstrip('/')}/{quote(source.topic)}?{urlencode(words)}"


def parse_source(text: str) -> SensorSource:
    """Parse the result of `encode_source`; ValueError if it is none."""
    parts = urlsplit(text)
    words = dict(parse_qsl(parts.query))
    topic = unquote(parts.path[1:])
    deadline, interval = words.get("deadline", "0"), words.get("interval", "0")
    if parts.scheme and not parts.netloc:
        raise ValueError("spec.mqtt.broker is missing: name the broker that the sensor publishes to")
    if not parts.scheme or not parts.netloc or not topic or not (deadline + interval).isdecimal():
        raise ValueError(f'source "{text[:80]}": not of the form mqtt://BROKER/TOPIC')
    fields = {name.removeprefix(_FIELD): value for name, value in words.items() if name.startswith(_FIELD)}
    broker = f"{parts.scheme}://{parts.netloc}"
    times = int(deadline) * SECOND, int(interval) * SECOND
    return SensorSource(broker, topic, words.get("template", "plain"), fields, *times)
