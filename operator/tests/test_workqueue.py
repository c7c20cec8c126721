"""The work queue and the cache that feeds it."""

import asyncio
from typing import Any

from embereye_operator.runtime.kubernetes.client.cache import Cache, key_of
from embereye_operator.workqueue import WorkQueue


async def test_a_key_that_is_added_twice_is_taken_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.next_key(), await queue.next_key()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_that_is_worked_on_comes_again_only_after_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.next_key() == "a"
    queue.add("a")
    again = asyncio.ensure_future(queue.next_key())
    await asyncio.sleep(0.01)
    assert not again.done()
    queue.done("a")
    assert await asyncio.wait_for(again, 5) == "a"


async def test_what_was_heard_of_comes_before_routine_looks_and_does_not_keep_them_away() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("r0", "r1", "a"):
        queue.add(key, routine=True)
    for key in ("a", "b", "c", "d", "e", "f"):
        queue.add(key)
    queue.add("b", routine=True)
    assert [await queue.next_key() for _ in range(8)] == ["a", "b", "c", "d", "r0", "e", "f", "r1"]
    assert len(queue) == 0


async def test_a_key_of_which_something_is_heard_while_it_is_worked_on_comes_first_again() -> None:
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
    def test_never_goes_back_in_time(self) -> None:
        cache = Cache()
        assert cache.put(service(5))
        assert not cache.put(service(4))
        assert not cache.put(service(5))
        assert cache.objects[key_of(service(5))].manifest() == service(5)

    def test_forgets_what_was_deleted_and_does_not_bring_it_back(self) -> None:
        cache = Cache()
        cache.put(service(5))
        assert cache.drop(key_of(service(5)), 6)
        assert not cache.put(service(5))
        assert cache.put(service(7))

    def test_ignores_the_deletion_of_what_was_made_anew(self) -> None:
        cache = Cache()
        cache.put(service(7))
        assert not cache.drop(key_of(service(7)), 6)
        assert cache.objects

    def test_learns_from_a_list_what_watches_missed(self) -> None:
        cache = Cache()
        cache.put(service(5, "stays"))
        cache.put(service(5, "goes"))
        cache.put(service(20, "newer-than-the-list"))
        assert cache.put(service(9, "comes"))
        gone = cache.replace("Service", [key_of(service(5, "stays")), key_of(service(9, "comes"))], 10)
        assert [key[2] for key in gone] == ["goes"]
        assert {key[2] for key in cache.objects} == {"stays", "comes", "newer-than-the-list"}
