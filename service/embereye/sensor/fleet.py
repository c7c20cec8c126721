"""A fleet as one of its shards sees it: its own devices, undeclared ones, and the shards that own the others.

`apply` makes it own exactly the devices of an assignment; a device that stays retains its state. Sessions and Ingest
find devices here by id. A device is the shard's own, or another shard's, to which it is relayed or redirected, or
undeclared: then people see it, but it raises no alarm. The counts of released devices are added to `totals`, so that
counters never decrease.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from embereye.detect.sensing.bands import BandTable
from embereye.sensor.candidate import SensorCandidate
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.device.status import device_status
from embereye.shard.ledger import Ledger
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.shard_pb2 import Assignment, Peer, SensorSettings
from embereye.v1.types_pb2 import Device
from embereye.zone.canary import is_canary

logger = logging.getLogger(__name__)
UNDECLARED_LIMIT = 64  # devices shown although no fleet declares them
PICTURES = 200  # thermal pictures in one status report, 3 KB each; with more devices they take turns


class Fleet:
    """The devices of a fleet, by the assignment in force."""

    def __init__(self, bands: BandTable, canary: Callable[[str], SensorDevice | None], garbage: Counter[str]) -> None:
        """`canary` returns the shard's canary, if the id is its; lines of refused devices are counted in `garbage`."""
        self.name = ""  # '': no assignment yet
        self.epoch = 0  # of the assignment in force
        self.settings = SensorSettings()
        self.totals = Ledger()  # of released devices, so that counters never decrease
        self._departed = 0  # quiet lines of released devices
        self._bands = bands
        self._canary = canary
        self._garbage = garbage
        self.owned_devices: dict[str, SensorDevice] = {}
        self._undeclared: dict[str, SensorDevice] = {}
        self.candidate: SensorCandidate | None = None
        self._since: dict[str, int] = {}  # device → the epoch since which this shard owns it
        self._elsewhere: Mapping[str, str] = {}  # device → the other shard that owns it
        self._peers: dict[str, Peer] = {}
        self._next_picture = 0  # number of the device whose thermal picture is reported next

    def apply(self, assignment: Assignment, settings: SensorSettings) -> dict[str, SensorDevice]:
        """Own exactly the devices of `assignment`; those that are already owned retain their state.

        It returns the devices that this shard no longer owns.
        """
        self.name, self.epoch, self.settings = assignment.fleet, assignment.epoch, settings
        wanted = {device.id: device for device in assignment.devices}
        left = {name: self.owned_devices[name] for name in set(self.owned_devices) - set(wanted)}
        for device in left.values():
            self._departed += device.arrivals.quiet_lines
            self.totals.add(device.arrivals.ledger)
            device.release()
        self.owned_devices = {
            name: self._configured(self.owned_devices.get(name) or self._undeclared.pop(name, None), spec)
            for name, spec in wanted.items()
        }
        self._since = {name: self._since.get(name, assignment.epoch) for name in wanted}
        self._elsewhere = dict(assignment.elsewhere)
        self._peers = {peer.shard: peer for peer in assignment.peers}
        for name in [name for name in self._undeclared if name in self._elsewhere]:
            self._undeclared.pop(name).release()
        for device in self._undeclared.values():
            device.configure(device.spec, settings)
        return left

    def _configured(self, device: SensorDevice | None, spec: Device) -> SensorDevice:
        if device is None:
            return SensorDevice(spec, self.settings, self._bands)
        device.configure(spec, self.settings)
        return device

    def __len__(self) -> int:
        return len(self.owned_devices) + len(self._undeclared)

    @property
    def handed_over(self) -> Collection[str]:
        """The devices that this shard owns until the shard to which they are assigned covers them."""
        return self.owned_devices.keys() & self._elsewhere.keys()

    @property
    def quiet_lines(self) -> int:
        """The number of lines of owned and released devices that needed no tick."""
        return self._departed + sum(device.arrivals.quiet_lines for device in self.owned_devices.values())

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state if this shard owns it or if it is the shard's canary, else None."""
        return self.owned_devices.get(device) or self._canary(device)

    def since(self, device: str) -> int:
        """The epoch since which this shard owns the device."""
        return self._since.get(device, 0)

    def peer_of(self, device: str) -> Peer | None:
        """The other shard that owns the device, else None."""
        owner = self._elsewhere.get(device)
        return self._peers.get(owner) if owner else None

    def is_elsewhere(self, device: str) -> bool:
        """True if the fleet assigns the device to another shard, known as a peer or not."""
        return device in self._elsewhere

    def peers(self) -> Collection[Peer]:
        """The fleet's other shards."""
        return self._peers.values()

    def undeclared(self, device: str) -> SensorDevice | None:
        """The state of an undeclared device, which people see but which raises no alarm; None if there are too many."""
        state = self._undeclared.get(device)
        if state is None:
            if not self.name:
                return None  # without an assignment, neither the declared devices nor their settings are known
            if is_canary(device):
                self._garbage["reserved id"] += 1
                return None
            if len(self._undeclared) >= UNDECLARED_LIMIT:
                self._garbage["undeclared device"] += 1
                return None
            logger.warning("device %s: not declared in %s: it is shown, but not watched", device, self.name)
            state = self._undeclared[device] = SensorDevice(Device(id=device), self.settings, self._bands)
        return state

    def forget_undeclared(self, since_ns: int) -> bool:
        """Forget the undeclared devices that were not heard since `since_ns`; True if there were any."""
        silent = [name for name, device in self._undeclared.items() if device.arrivals.watch.heard_ns < since_ns]
        for name in silent:
            self._undeclared.pop(name).release()
        return bool(silent)

    def statuses(self, now_ns: int) -> Iterator[DeviceStatus]:
        """Yield the status of every owned, then of every undeclared device; some have their thermal picture.

        Devices that were released meanwhile are skipped.
        """
        devices = (*self.owned_devices.items(), *self._undeclared.items())
        first, self._next_picture = self._next_picture, (self._next_picture + PICTURES) % max(1, len(devices))
        for number, (name, device) in enumerate(devices):
            if self.owned_devices.get(name, self._undeclared.get(name)) is device:
                thermal = (number - first) % len(devices) < PICTURES
                yield device_status(device, now_ns, self.settings.deadline_ns, thermal=thermal)
