"""What a broker is to retain, topic by topic, made from what the hub knows."""

from collections.abc import Iterator
from itertools import chain

from embereye.hub.coverage.book import CoverageBook, Fleet, Watched
from embereye.hub.mqtt.entities import (
    DeviceState,
    Message,
    Topics,
    Watch,
    device_entities,
    device_payload,
    zone_entities,
    zone_payload,
)
from embereye.hub.mqtt.options import MqttOptions
from embereye.hub.zones import Zones

Key = tuple[str, str]  # of a zone, namespace and name; of a device, fleet and id


class RetainedTopics:
    """All topics but the status, each with the payload that it is to have. `refresh` brings them up to date."""

    def __init__(self, options: MqttOptions, zones: Zones, book: CoverageBook) -> None:
        self.topics = Topics(options)
        self._discovery = bool(options.discovery)
        self._zones = zones
        self._book = book
        self.states: dict[str, bytes] = {}  # of zones
        self._of_zones: dict[Key, tuple[Message, ...]] = {}  # how Home Assistant is told of each
        self._of_devices: dict[Key, tuple[DeviceState, Message, tuple[Message, ...]]] = {}

    def refresh(self) -> None:
        """Look at every zone and device. What has not changed is not made anew."""
        self._refresh_zones()
        self._refresh_devices()

    def _refresh_zones(self) -> None:
        zones = self._zones.messages()
        self.states = {self.topics.zone(zone.namespace, zone.name): zone_payload(zone) for zone in zones}
        if self._discovery:
            known = self._of_zones
            self._of_zones = {
                key: known.get(key) or tuple(zone_entities(self.topics, *key))
                for key in ((zone.namespace, zone.name) for zone in zones)
            }

    def _refresh_devices(self) -> None:
        dark = self._zones.dark()
        known, self._of_devices = self._of_devices, {}
        for fleet, watched in self._book.devices():
            key = fleet.name, watched.device.id
            state = _state_of(fleet, watched, dark.get(key))
            before = known.get(key)
            if before is not None and before[0] == state:
                self._of_devices[key] = before
                continue
            told = self.topics.device(*key), device_payload(state)
            described = tuple(device_entities(self.topics, state)) if self._discovery else ()
            self._of_devices[key] = state, told, described

    def urgent(self) -> Iterator[Message]:
        """What people wait for: the states of zones, then of devices."""
        return chain(self.states.items(), (told for _, told, _ in self._of_devices.values()))

    def descriptions(self) -> Iterator[Message]:
        """What Home Assistant is told."""
        of_devices = (described for _, _, described in self._of_devices.values())
        return chain.from_iterable(chain(self._of_zones.values(), of_devices))


def _state_of(fleet: Fleet, watched: Watched, why_dark: str | None) -> DeviceState:
    """A device is dark when its zone has said so: that has waited for its deadline."""
    watch = Watch.DARK if why_dark is not None else Watch.WATCHED if watched.covered else Watch.UNKNOWN
    return DeviceState(fleet.name, watched.device.id, watched.device.zone, watch, why_dark or "")
