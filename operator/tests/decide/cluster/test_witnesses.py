"""Two witnesses decide that a shard is lost: the hub that it reports to, and the operator that calls it."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest

from embereye.units import SECOND
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.decide.cluster.witnesses import RECENT, SUSPECT, UNANSWERED, UNHEARD, Statements, Witnesses
from embereye_operator.decide.fleet_memory import LOST, VOUCHED_LOST, FleetMemory

from ...fakes import World
from ...test_reconcile import fleet_of, record

FLEET = "default/sensors/hall"
SHARD = FLEET, "hall-sensors-0"
CALL = UNANSWERED / SECOND  # longest duration of a call, in seconds
PHASES = [number / 8 for number in range(8)]


def witnesses(silence: int, unanswered: int, now: int = 100 * SECOND) -> Witnesses:
    """The hub has heard nothing for `silence`, and the operator's calls have been unanswered for `unanswered`."""
    result = Witnesses()
    result.note_hubs([{SHARD: SUSPECT}], now - SECOND)
    result.note_call(SHARD, now - unanswered, answered=False)
    result.note_hubs([{SHARD: silence}], now)
    return result


@pytest.mark.parametrize(
    ("silence", "unanswered", "unheard"),
    [
        (UNHEARD, UNANSWERED, {SHARD}),
        (UNHEARD - 1, 60 * SECOND, set()),
        (60 * SECOND, UNANSWERED - 1, set()),
    ],
)
def test_one_witness_alone_gives_no_shard_up(silence: int, unanswered: int, unheard: set[tuple[str, str]]) -> None:
    now = 100 * SECOND
    assert witnesses(silence, unanswered).unheard(now) == unheard
    statements = witnesses(silence, unanswered).statements(FLEET, ["hall-sensors-0", "hall-sensors-1"], now)
    assert statements == Statements({name for _, name in unheard}, set())


def test_an_answer_of_the_shard_ends_its_silence() -> None:
    now, lost = 100 * SECOND, witnesses(UNHEARD, UNANSWERED)
    lost.note_call(SHARD, now, answered=True)
    assert lost.unheard(now) == set()


def test_the_hub_that_hears_a_shard_counts_more_than_one_that_it_has_left() -> None:
    now, lost = 100 * SECOND, witnesses(UNHEARD, UNANSWERED)
    lost.note_hubs([{SHARD: UNHEARD}, {SHARD: 0}], now)
    assert lost.unheard(now) == set()
    assert lost.statements(FLEET, ["hall-sensors-0", "hall-sensors-1"], now) == Statements(set(), {"hall-sensors-0"})


def test_a_hub_that_does_not_answer_any_more_says_nothing() -> None:
    now, lost = 100 * SECOND, witnesses(UNHEARD, UNANSWERED)
    assert lost.unheard(now + RECENT) == {SHARD}
    assert lost.unheard(now + RECENT + 1) == set(), "the operator was stopped"
    lost.note_hubs([], now)
    assert lost.unheard(now) == set()


def test_calls_before_an_absence_of_the_operator_do_not_count() -> None:
    lost, now = witnesses(UNHEARD, UNANSWERED), 110 * SECOND
    lost.note_hubs([{SHARD: UNHEARD}], now)
    assert lost.unheard(now) == set()


def time_of_loss(
    reports: Sequence[float], answer: Callable[[float], float | None], phase: float, until: float
) -> float | None:
    """Return when the shard is unheard, in seconds; None if not before `until`.

    `reports` are the times at which the hub hears it, `answer` returns when it answers a call that begins at a time.
    The operator asks the hub every second, from `phase` on, and at the end of each call.
    """
    result, tick = Witnesses(), phase
    call: tuple[float, float, bool] | None = None  # its end, its start, if it is answered
    while (now := min(tick, call[0] if call else math.inf)) < until:
        if call and call[0] <= now:
            result.note_call(SHARD, round(call[1] * SECOND), answered=call[2])
            call = None
        if tick <= now:
            tick += 1.0
        silence = now - max(report for report in reports if report <= now)
        result.note_hubs([{SHARD: round(silence * SECOND)}], round(now * SECOND))
        if result.unheard(round(now * SECOND)):
            return now
        if result.suspects() and call is None:
            answered = answer(now)
            in_time = answered is not None and answered - now < CALL
            call = (answered, now, True) if answered is not None and in_time else (now + CALL, now, False)
    return None


def stop(seconds: float, reporting: float, asking: float) -> float | None:
    """Stop the shard at 100 s for `seconds`; return how much later it is unheard, None if it never is."""
    began, ended = 100.0, 100.0 + seconds
    planned = [number + reporting for number in range(90, 130)]
    reports = [report for report in planned if not began < report < ended] + [ended]

    def answer(start: float) -> float | None:
        return start + 0.01 if start < began else max(start, ended) + 0.01

    lost = time_of_loss(reports, answer, 95 + asking, 125)
    return None if lost is None else lost - began


@pytest.mark.parametrize(("reporting", "asking"), list(product(PHASES, PHASES)))
def test_a_stop_of_three_seconds_is_no_loss_and_the_end_is_one_within_seven(reporting: float, asking: float) -> None:
    assert stop(3.0, reporting, asking) is None
    late = stop(math.inf, reporting, asking)
    assert late is not None
    assert 4 <= late <= 7


def test_a_loss_of_every_fifth_packet_for_a_minute_is_no_loss_of_a_shard() -> None:
    for seed in range(100):
        randomly = random.Random(seed)

        def delay(randomly: random.Random = randomly) -> float:
            """TCP sends a lost packet again after 0.2 s, then after twice as long, and so on."""
            lost = 0
            while randomly.random() < 0.2:
                lost += 1
            return 0.2 * (2**lost - 1)

        reports = [-1.0]
        for second in range(60):
            reports.append(max(reports[-1], second + delay()))  # in order
        assert time_of_loss(reports, lambda start: start + delay() + delay(), 0.5, 59) is None, seed


def test_unheard_shards_are_lost_at_once_however_many_they_are() -> None:
    memory, shards = FleetMemory(), ["x-0", "x-1", "x-2"]
    memory.note_statuses(dict.fromkeys(shards), 0, Statements(unheard={"x-0", "x-1"}))
    assert memory.lost_shards(shards, 0) == {"x-0", "x-1"}
    memory.note_statuses({"x-0": ShardStatus(), "x-1": None, "x-2": None}, 0, Statements(unheard={"x-0"}))
    assert memory.lost_shards(shards, 0) == set(), "it has answered since"


def test_the_operator_waits_longer_for_a_shard_that_the_hub_hears() -> None:
    memory, shards = FleetMemory(), ["x-0", "x-1", "x-2"]
    answers = {"x-0": ShardStatus(), "x-1": ShardStatus(), "x-2": None}
    for now in range(0, VOUCHED_LOST + SECOND, SECOND):
        memory.note_statuses(answers, now, Statements(vouched={"x-2"}))
        assert memory.lost_shards(shards, now) == ({"x-2"} if now >= VOUCHED_LOST else set())
    memory.note_statuses(answers, now, Statements())
    assert memory.lost_shards(shards, now) == {"x-2"}
    assert LOST < VOUCHED_LOST


async def test_devices_of_unheard_shards_move_although_they_are_the_majority() -> None:
    world = World(fleet_of(6, shards=3))
    await world.run_until_complete()
    for shard in ("hall-sensors-1", "hall-sensors-2"):
        world.runtime.shards[shard].reachable = False
    await world.step()
    await world.last(LOST / SECOND)
    assert set(record(world)["devices"].values()) == {f"hall-sensors-{index}" for index in range(3)}
    world.runtime.witnessed = Statements(unheard={"hall-sensors-1", "hall-sensors-2"})
    await world.step()
    assert set(record(world)["devices"].values()) == {"hall-sensors-0"}
    assert len(world.runtime.shards["hall-sensors-0"].assignment.devices) == 6
