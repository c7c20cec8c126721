"""The work queue and the cache that fills it."""

import asyncio
import random
from collections import Counter
from typing import Any

from harness.eventually import eventually

from embereye_operator.runtime.kubernetes.client.cache import Cache, key_of
from embereye_operator.workqueue import WorkQueue


async def test_a_key_that_is_added_twice_is_processed_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.next_key(), await queue.next_key()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_in_work_returns_only_after_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.next_key() == "a"
    queue.add("a")
    again = asyncio.ensure_future(queue.next_key())
    await asyncio.sleep(0.01)
    assert not again.done()
    queue.done("a")
    assert await asyncio.wait_for(again, 5) == "a"


async def test_keys_with_events_precede_routine_ones_without_starving_them() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("r0", "r1", "a"):
        queue.add(key, routine=True)
    for key in ("a", "b", "c", "d", "e", "f"):
        queue.add(key)
    queue.add("b", routine=True)
    assert [await queue.next_key() for _ in range(8)] == ["a", "b", "c", "d", "r0", "e", "f", "r1"]
    assert len(queue) == 0


async def test_a_key_with_an_event_during_its_work_returns_first() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", routine=True)
    assert await queue.next_key() == "a"
    queue.add("r", routine=True)
    queue.add("a", routine=True)
    queue.add("a")
    queue.add("a", routine=True)
    queue.done("a")
    assert [await queue.next_key(), await queue.next_key()] == ["a", "r"]


async def test_a_waiting_worker_gets_the_next_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = [asyncio.ensure_future(queue.next_key()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.wait_for(asyncio.gather(*waiting), 5)) == ["a", "b"]


def service(version: int, name: str = "x", **fields: Any) -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}, **fields}


class TestCache:
    def test_never_replaces_a_newer_version(self) -> None:
        cache = Cache()
        assert cache.put(service(5))
        assert not cache.put(service(4))
        assert not cache.put(service(5))
        assert cache.objects[key_of(service(5))].manifest() == service(5)

    def test_forgets_deleted_objects_for_good(self) -> None:
        cache = Cache()
        cache.put(service(5))
        assert cache.drop(key_of(service(5)), 6)
        assert not cache.put(service(5))
        assert cache.put(service(7))

    def test_ignores_the_deletion_of_a_recreated_object(self) -> None:
        cache = Cache()
        cache.put(service(7))
        assert not cache.drop(key_of(service(7)), 6)
        assert cache.objects

    def test_learns_from_a_list_about_missed_changes(self) -> None:
        cache = Cache()
        cache.put(service(5, "stays"))
        cache.put(service(5, "goes"))
        cache.put(service(20, "newer-than-the-list"))
        assert cache.put(service(9, "comes"))
        gone = cache.replace("Service", [key_of(service(5, "stays")), key_of(service(9, "comes"))], 10)
        assert [key[2] for key in gone] == ["goes"]
        assert {key[2] for key in cache.objects} == {"stays", "comes", "newer-than-the-list"}


async def test_with_many_producers_no_key_is_missed_or_has_two_workers(debugged: bool) -> None:
    producers, workers, number = 16, 16, 10_000 if debugged else 50_000
    queue: WorkQueue[int] = WorkQueue()
    dice = random.Random(7)
    added, seen, running = Counter[int](), Counter[int](), set[int]()

    async def produce() -> None:
        for _ in range(number // producers):
            key = dice.randrange(300)
            added[key] += 1
            queue.add(key, routine=dice.random() < 0.3)
            if dice.random() < 0.2:
                await asyncio.sleep(0)

    async def work() -> None:
        while True:
            key = await queue.next_key()
            assert key not in running
            running.add(key)
            seen[key] = added[key]
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            running.discard(key)
            queue.done(key)

    at_work = [asyncio.ensure_future(work()) for _ in range(workers)]
    await asyncio.wait_for(asyncio.gather(*(produce() for _ in range(producers))), 60)
    await eventually(lambda: not (len(queue) or running), 20)
    assert seen == added
    for task in at_work:
        task.cancel()
    ended = await asyncio.wait_for(asyncio.gather(*at_work, return_exceptions=True), 10)
    assert all(isinstance(task, asyncio.CancelledError) for task in ended)


async def test_a_worker_cancelled_as_a_key_arrives_leaves_it_to_another(debugged: bool) -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = [asyncio.ensure_future(queue.next_key()) for _ in range(8)]
    await asyncio.sleep(0)
    queue.add("a")
    for result in waiting[:7]:
        result.cancel()
    assert await asyncio.wait_for(waiting[7], 10) == "a"
