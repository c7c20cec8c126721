"""The topics that a broker should retain, made from the hub's present state.

This is the wanted state; the publisher owns the acknowledged one, calls `refresh` before it compares both, and sends
the difference. Zones are encoded at each refresh. A device's messages are made again only if its state changed, because
there are many devices.
"""

from collections.abc import Iterator, Sequence
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
from embereye.hub.switches import ZoneSwitch
from embereye.hub.zones import Zones

Key = tuple[str, str]  # of a zone, namespace and name; of a device, fleet and id


class RetainedTopics:
    """All topics except the status, with their payloads. `refresh` updates them."""

    def __init__(
        self, options: MqttOptions, zones: Zones, book: CoverageBook, switches: Sequence[ZoneSwitch] = ()
    ) -> None:
        self.topics = Topics(options)
        self._discovery = bool(options.discovery)
        self._zones = zones
        self._book = book
        self._switches = switches
        self.states: dict[str, bytes] = {}  # of zones
        self._zone_descriptions: dict[Key, tuple[Message, ...]] = {}  # for Home Assistant
        self._devices: dict[Key, tuple[DeviceState, Message, tuple[Message, ...]]] = {}  # state, message, descriptions

    def refresh(self) -> None:
        """Update the messages of zones and devices that have changed."""
        self._refresh_zones()
        self._refresh_devices()

    def _refresh_zones(self) -> None:
        zones = self._zones.messages()
        self.states = {
            self.topics.zone(zone.namespace, zone.name): zone_payload(zone, self._switches) for zone in zones
        }
        if self._discovery:
            known = self._zone_descriptions
            self._zone_descriptions = {
                key: known.get(key) or tuple(zone_entities(self.topics, *key, self._switches))
                for key in ((zone.namespace, zone.name) for zone in zones)
            }

    def _refresh_devices(self) -> None:
        dark = self._zones.fault_reasons()
        known, self._devices = self._devices, {}
        for fleet, watched in self._book.devices():
            key = fleet.name, watched.device.id
            state = _state_of(fleet, watched, dark.get(key))
            before = known.get(key)
            if before is not None and before[0] == state:
                self._devices[key] = before
                continue
            message = self.topics.device(*key), device_payload(state)
            descriptions = tuple(device_entities(self.topics, state)) if self._discovery else ()
            self._devices[key] = state, message, descriptions

    def urgent(self) -> Iterator[Message]:
        """The messages that people wait for: the states of zones, then of devices."""
        return chain(self.states.items(), (message for _, message, _ in self._devices.values()))

    def descriptions(self) -> Iterator[Message]:
        """The descriptions for Home Assistant."""
        of_devices = (descriptions for _, _, descriptions in self._devices.values())
        return chain.from_iterable(chain(self._zone_descriptions.values(), of_devices))


def _state_of(fleet: Fleet, watched: Watched, why_dark: str | None) -> DeviceState:
    """Return the published state of a device. It is dark once its zone has reported that, after its deadline."""
    watch = Watch.DARK if why_dark is not None else Watch.WATCHED if watched.covered_at else Watch.UNKNOWN
    return DeviceState(fleet.name, watched.device.id, watched.device.zone, watch, why_dark or "")
