"""The two witnesses of a shard's silence: the hub that it reports to, and the operator's own calls.

Either of them may be cut off from a shard that works, or may have been stalled. A shard that both miss is `unheard`:
its devices move at once, however many other shards are silent. A shard that its hub hears is `vouched` for, and the
operator waits longer for it. If no hub has answered recently, or hubs are of an earlier version, no shard is either.

`runtime/kubernetes/silence.py` notes the answers of the hubs, and the outcome of its calls to the `suspects`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from embereye.units import SECOND

ShardKey = tuple[str, str]  # its fleet's key, its name

SUSPECT = 2 * SECOND  # silence at the hub from which the operator calls a shard itself; shards report every second
# Silence at the hub from which a shard can be unheard. A process that stops for 3 s is silent for little more than 4 s,
# because its latest report may be a second old.
UNHEARD = 5 * SECOND
UNANSWERED = 2 * SECOND  # how long the operator's calls must have been without an answer: as long as one call may take
VOUCHED = 3 * SECOND  # silence at the hub below which it vouches for a shard
RECENT = 3 * SECOND  # how long the answers of hubs count, and how long the operator may pause; it asks every second


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements about the shards of one fleet."""

    unheard: Collection[str] = ()  # shards that neither the hub nor the operator hears
    vouched: Collection[str] = ()  # shards that the hub hears


@dataclass
class Witnesses:
    """The latest statements of the hubs and of the operator. Times are nanoseconds of one steady clock."""

    _silences: Mapping[ShardKey, int] = field(default_factory=dict)  # nanoseconds, at the hub that has heard it last
    _asked: int = 0  # when the hubs were last asked
    _unanswered: dict[ShardKey, int] = field(default_factory=dict)  # start of the first call since the latest answer

    def note_hubs(self, answers: Iterable[Mapping[ShardKey, int]], now: int) -> None:
        """Record for how many nanoseconds each hub that answered has not heard each shard."""
        if now - self._asked > RECENT:
            self._unanswered.clear()  # the operator itself was away, and shards may have answered it since
        silences: dict[ShardKey, int] = {}
        for answer in answers:
            for shard, silence in answer.items():
                silences[shard] = min(silence, silences.get(shard, silence))
        self._silences, self._asked = silences, now
        self._unanswered = {key: since for key, since in self._unanswered.items() if silences.get(key, 0) >= SUSPECT}

    def note_call(self, shard: ShardKey, since: int, *, answered: bool) -> None:
        """Record the outcome of a call to `shard` that began at `since`."""
        if answered:
            self._unanswered.pop(shard, None)
        else:
            self._unanswered.setdefault(shard, since)

    def suspects(self) -> set[ShardKey]:
        """Return the shards that the operator has to call, because the hubs have not heard them for SUSPECT."""
        return {shard for shard, silence in self._silences.items() if silence >= SUSPECT}

    def is_unanswered(self, shard: ShardKey, now: int) -> bool:
        """True if `shard` is suspect, and has not answered the operator's latest call."""
        return shard in self._unanswered and self._silence(shard, now) >= SUSPECT

    def unheard(self, now: int) -> set[ShardKey]:
        """Return the shards that neither the hubs nor the operator hear."""
        return {shard for shard in self._unanswered if self._is_unheard(shard, now)}

    def statements(self, fleet: str, shards: Iterable[str], now: int) -> Statements:
        """Return the statements about these `shards` of the fleet with the key `fleet`."""
        unheard, vouched = set[str](), set[str]()
        for name in shards:
            shard = fleet, name
            if self._is_unheard(shard, now):
                unheard.add(name)
            elif shard in self._silences and now - self._asked <= RECENT and self._silences[shard] < VOUCHED:
                vouched.add(name)
        return Statements(unheard, vouched)

    def _is_unheard(self, shard: ShardKey, now: int) -> bool:
        since = self._unanswered.get(shard)
        return since is not None and now - since >= UNANSWERED and self._silence(shard, now) >= UNHEARD

    def _silence(self, shard: ShardKey, now: int) -> int:
        """Return the silence of `shard` at the hubs; 0 if that is not known."""
        return self._silences.get(shard, 0) if now - self._asked <= RECENT else 0
