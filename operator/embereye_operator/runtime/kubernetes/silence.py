"""Ask the hubs every second for silent shards, and call these shards, so that two witnesses agree on a lost one.

The controller calls `check` while it leads, and reconciles the fleets with news. `decide/cluster/witnesses.py` decides
from the answers. The calls run beside `check`, one for each suspect, because a call to a lost shard takes seconds.
Passes do not call suspects that have not answered, for which they would only wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.api.fleets import Fleet
from embereye_operator.decide.cluster.witnesses import ShardKey, Statements, Witnesses

Silences = Mapping[ShardKey, int]  # shard → nanoseconds since its latest report to a hub


@dataclass(eq=False)
class SilenceWatch:
    """Knows which shards neither the hubs nor the operator hear.

    `ask_hubs` returns the silences at each hub that answers, `call` the status of a shard that answers.
    """

    ask_hubs: Callable[[], Awaitable[Sequence[Silences]]]
    call: Callable[[Fleet, str], Awaitable[ShardStatus | None]]
    clock: Callable[[], int] = now_ns
    # set when a suspect begins or ceases to answer
    changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _witnesses: Witnesses = field(default_factory=Witnesses, init=False)
    _calling: set[ShardKey] = field(default_factory=set, init=False)
    _calls: Tasks = field(default_factory=Tasks, init=False)
    # suspects, if unanswered, if unheard; as last returned
    _known: set[tuple[ShardKey, bool, bool]] = field(default_factory=set, init=False)

    async def check(self, fleets: Mapping[str, Fleet]) -> set[str]:
        """Ask hubs and call suspects, once; return the keys of those of `fleets` with news. Call it every second."""
        answers = await self.ask_hubs()
        now = self.clock()
        self._witnesses.note_hubs(answers, now)
        suspects = {shard for shard in self._witnesses.suspects() if shard[0] in fleets}
        for key, name in suspects - self._calling:
            self._calling.add((key, name))
            self._calls.start(self._ask(fleets[key], name), name=f"call-{name}")
        unheard = self._witnesses.unheard(now)
        known, self._known = (
            self._known,
            {(shard, self._witnesses.is_unanswered(shard, now), shard in unheard) for shard in suspects},
        )
        return {key for (key, _), _, _ in known ^ self._known}

    async def _ask(self, fleet: Fleet, name: str) -> None:
        shard, since = (fleet.key, name), self.clock()
        try:
            answered = await self.call(fleet, name) is not None
            if answered == self._witnesses.is_unanswered(shard, self.clock()):
                self.changed.set()
            self._witnesses.note_call(shard, since, answered=answered)
        finally:
            self._calling.discard(shard)

    def is_unanswered(self, fleet: Fleet, name: str) -> bool:
        """True if no hub hears the shard `name`, and it has not answered the latest call."""
        return self._witnesses.is_unanswered((fleet.key, name), self.clock())

    def unheard(self) -> set[ShardKey]:
        """Return the shards that neither the hubs nor the operator hear."""
        return self._witnesses.unheard(self.clock())

    def statements(self, fleet: Fleet, shards: Iterable[str]) -> Statements:
        """Return the statements about these `shards` of `fleet`."""
        return self._witnesses.statements(fleet.key, shards, self.clock())

    async def close(self) -> None:
        """End all calls."""
        await self._calls.stop()
