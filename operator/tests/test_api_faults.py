"""An operator process behind an API server that fails: nothing dark, nothing orphaned, and the log says it once."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness.apiserver import wait_for

from .faulty import gone, is_watch, is_write, status
from .site import Site
from .test_operator import children

pytestmark = pytest.mark.apiserver


def storm(code: int, share: int, **headers: str) -> Callable[[Any], Any]:
    """Of each `share` requests that are no watch, only the last is served."""
    count = itertools.count(1)

    def judge(request: Any) -> Any:
        if is_watch(request) or next(count) % share == 0:
            return None
        return status(code, "the server is not well", **headers)

    return judge


def test_watches_that_are_cut_or_too_old_are_taken_up_again(site: Site) -> None:
    site.proxy.cut()
    site.scale(3)
    site.heals(3)
    first = itertools.count()
    site.proxy.judge = lambda request: gone() if is_watch(request) and next(first) < 5 else None
    site.proxy.cut()
    site.scale(1)
    site.heals(1)


@pytest.mark.parametrize(("code", "headers"), [(500, {}), (429, {"Retry-After": "1"}), (409, {})])
def test_a_storm_of_errors_is_outlived_and_told_once(site: Site, code: int, headers: dict[str, str]) -> None:
    site.proxy.judge = storm(code, 4, **headers)
    site.scale(3)
    wait_for(lambda: site.proxy.answered[code] >= 3, "some errors")
    time.sleep(3)
    site.proxy.judge = lambda _: None
    site.heals(3)
    told = [line for line in site.warnings() if "hall" in line]
    assert 1 <= len(told) <= 6, "the reason, not every attempt"


def test_retry_after_is_honoured(site: Site) -> None:
    times = []

    def judge(request: Any) -> Any:
        if not is_write(request) or len(times) == 3:
            return None
        times.append(time.monotonic())
        return status(429, "too many requests", **{"Retry-After": "2"})

    site.proxy.judge = judge
    site.scale(3)
    site.heals(3)
    assert len(times) == 3
    assert min(after - before for before, after in itertools.pairwise(times)) >= 2.0


@pytest.mark.parametrize("seconds", [10, pytest.param(75, marks=pytest.mark.slow)])
def test_a_server_that_is_away_changes_nothing_and_is_told_once(site: Site, seconds: int) -> None:
    before = children(site.cluster, site.namespace)
    site.proxy.down = True
    site.proxy.cut()
    site.scale(3)
    time.sleep(seconds)
    after = children(site.cluster, site.namespace)
    assert {key: child["metadata"]["uid"] for key, child in before.items()} == {
        key: child["metadata"]["uid"] for key, child in after.items()
    }
    site.proxy.down = False
    site.heals(3, 60)
    assert len(site.warnings()) <= 4, site.warnings()


def test_a_fleet_that_is_deleted_in_the_middle_of_a_handover_leaves_nothing(site: Site) -> None:
    site.scale(3)
    wait_for(lambda: ("Deployment", "hall-sensors-2") in children(site.cluster, site.namespace), "a third shard")
    site.cluster.request("DELETE", site.fleet)
    if site.cluster.collects_garbage:
        wait_for(lambda: not children(site.cluster, site.namespace), "no children")
        time.sleep(3)
        assert not children(site.cluster, site.namespace), "nothing is made for a fleet that is gone"
