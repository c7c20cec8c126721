"""Floor plans: a picture of each floor, and the devices' places on it.

Plans and places are in memory and change only in steps of the committer. Pictures are in the database, and are read
when they are shown. A plan is in memory before its picture is durable, so a picture that is read has to match the
plan's digest.

The newest pictures also stay in memory, up to RECENT_BYTES. The hub writes them again if the database loses commits.
"""

import hashlib
import re
from collections import OrderedDict

from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Committer, Draft
from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store, StoreThreads
from embereye.hub.plans.images import PlanImage
from embereye.hub.refusals import InvalidError, UnknownNameError
from embereye.hub.roles import Principal
from embereye.hub.tables.plans import PLAN_DEVICES, PLAN_IMAGES, PLANS, DeviceKey, Place, Plan, plan_image
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.units import MIB

LETTERS = "A-Za-z0-9\\u00c0-\\u1fff\\u2c00-\\ud7ff"  # of most scripts
NAME = re.compile(f"[{LETTERS}][{LETTERS}._ ()-]{{0,62}}")
MAX_PLANS = 100
MAX_DEVICES = 5_000  # on one plan
RECENT_BYTES = 32 * MIB  # of images in memory, in case a failover loses their commits: two of the largest


class Plans:
    """All plans: stored in the database and, except for their images, in memory."""

    def __init__(self, committer: Committer, store: StoreThreads) -> None:
        self._committer = committer
        self._store = store
        self._plans: dict[str, Plan] = {}
        self._recent_images: OrderedDict[str, bytes] = OrderedDict()  # by plan, newest last

    def restore(self, stored: StoredState) -> None:
        """Restore the stored plans."""
        self._plans = dict(stored[PLANS])
        for (name, *device), place in stored[PLAN_DEVICES].items():
            if plan := self._plans.get(name):
                plan.devices[device[0], device[1]] = place

    def add_state(self, state: Transaction) -> None:
        """Add all plans to `state`, with the images that were stored recently."""
        state[PLANS].update(self._plans)
        state[PLAN_IMAGES].update(self._recent_images)
        state[PLAN_DEVICES].update(
            ((name, *device), place) for name, plan in self._plans.items() for device, place in plan.devices.items()
        )

    def all(self) -> list[Plan]:
        """All plans, sorted."""
        return sorted(self._plans.values(), key=lambda plan: (plan.order, plan.name))

    def find(self, name: str) -> Plan:
        """The plan called `name`; UnknownNameError."""
        if name not in self._plans:
            raise UnknownNameError(f'there is no plan "{name[:80]}"')
        return self._plans[name]

    async def image(self, name: str) -> bytes:
        """The picture of a plan. Raises UnknownNameError, and StoreError if it is not stored yet."""
        digest = self.find(name).digest

        def read(store: Store) -> bytes:
            data = plan_image(store, name)
            if hashlib.sha256(data).hexdigest() != digest:  # a plan is in memory before it is durable
                raise StoreError(f"plan {name}: its picture is not stored. Try again in a moment, or store it again.")
            return data

        return await self._store.read(read)

    async def store(self, by: Principal, name: str, image: PlanImage) -> Plan:
        """Store `image` as the picture of the plan `name`; creates the plan, or leaves its devices in place.

        Raises InvalidError and StoreFailingError.
        """
        if not NAME.fullmatch(name):
            raise InvalidError(
                f'"{name[:80]}": is not a valid plan name. Use at most 63 letters, digits, spaces and . _ - ( )'
            )
        stored: list[Plan] = []

        def step(draft: Draft) -> None:
            before = self._plans.get(name)
            if before is None and len(self._plans) >= MAX_PLANS:
                raise InvalidError(f"there are {MAX_PLANS} plans already. Remove some first.")
            last = max((plan.order for plan in self._plans.values()), default=0)
            plan = Plan(
                name, image.media, image.width, image.height, hashlib.sha256(image.data).hexdigest(),
                before.order if before else last + 1, draft.now_ns + draft.stepped_ns, by.name,
                before.devices if before else {},
            )  # fmt: skip
            self._plans[name] = plan
            draft.transaction[PLANS][name] = plan
            draft.transaction[PLAN_IMAGES][name] = image.data
            self._remember_image(name, image.data)
            stored.append(plan)
            add_entry(draft, by, "store plan", name, f"{image.width} by {image.height} pixels")

        await self._committer.commit(step)
        return stored[0]

    def _remember_image(self, name: str, data: bytes) -> None:
        self._recent_images.pop(name, None)
        self._recent_images[name] = data
        while sum(map(len, self._recent_images.values())) > RECENT_BYTES:
            self._recent_images.popitem(last=False)

    async def remove(self, by: Principal, name: str) -> None:
        """Remove a plan and the devices' places on it; UnknownNameError, StoreFailingError."""

        def step(draft: Draft) -> None:
            plan = self.find(name)
            del self._plans[name]
            self._recent_images.pop(name, None)
            draft.transaction[PLANS][name] = draft.transaction[PLAN_IMAGES][name] = None
            draft.transaction[PLAN_DEVICES].update(dict.fromkeys((name, *device) for device in plan.devices))
            add_entry(draft, by, "remove plan", name)

        await self._committer.commit(step)

    async def place(self, by: Principal, name: str, device: DeviceKey, place: Place) -> None:
        """Place a device on a plan, or move it; UnknownNameError, InvalidError, StoreFailingError."""
        if not (0 <= place.x <= 1 and 0 <= place.y <= 1):
            raise InvalidError(f"x and y: {place.x:g}, {place.y:g} is not on the plan. Use fractions from 0 to 1.")

        def step(draft: Draft) -> None:
            plan = self.find(name)
            if device not in plan.devices and len(plan.devices) >= MAX_DEVICES:
                raise InvalidError(f"{MAX_DEVICES} devices are on the plan already. Use another plan for some.")
            plan.devices[device] = place
            draft.transaction[PLAN_DEVICES][name, *device] = place
            add_entry(draft, by, "place on plan", name, f"{device[1]} at {place.x:.3f}, {place.y:.3f}")

        await self._committer.commit(step)

    async def remove_device(self, by: Principal, name: str, device: DeviceKey) -> None:
        """Remove a device from a plan; UnknownNameError if it is not on it, StoreFailingError."""

        def step(draft: Draft) -> None:
            plan = self.find(name)
            if plan.devices.pop(device, None) is None:
                raise UnknownNameError(f"{device[1][:80]} of {device[0][:200]} is not on the plan {name}")
            draft.transaction[PLAN_DEVICES][name, *device] = None
            add_entry(draft, by, "take off plan", name, device[1])

        await self._committer.commit(step)
