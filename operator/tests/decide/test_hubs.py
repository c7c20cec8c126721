"""Several hubs: the choice of a fleet's hub, and the report if it is unknown."""

from dataclasses import replace
from typing import Any

import pytest

from embereye_operator.api.fleets import Fleet, FleetError, parse_fleet
from embereye_operator.decide.hubs import NamedHub, UnknownHubError, choose_hub, parse_hubs

from ..api.test_schema import manifest
from ..fakes import SETTINGS, World
from ..test_reconcile import condition, fleet_of

OWN = NamedHub("", SETTINGS.hub)
NORTH = NamedHub("north", "north:50053", "north-hub", ("north",))
SHARED = NamedHub("shared", "shared:50053", "shared-hub")
HUBS = (NORTH, SHARED)


def fleet(namespace: str = "site", hub: str = "") -> Fleet:
    return parse_fleet(manifest(spec={"hub": hub}, namespace=namespace))


@pytest.mark.parametrize(
    ("namespace", "named", "chosen"),
    [
        ("site", "", OWN),
        ("north", "", NORTH),
        ("north", "north", NORTH),
        ("site", "shared", SHARED),
        ("north", "shared", SHARED),
    ],
)
def test_a_fleet_reports_to_its_chosen_hub_or_its_namespaces(namespace: str, named: str, chosen: NamedHub) -> None:
    assert choose_hub(fleet(namespace, named), OWN, HUBS) == chosen


@pytest.mark.parametrize(
    ("namespace", "named", "hubs", "words"),
    [
        ("site", "south", HUBS, ['no hub "south"', "there are shared"]),
        ("site", "north", HUBS, ['no hub "north" is for namespace site', "there are shared"]),
        ("site", "north", (NORTH,), ["only the release's default hub exists"]),
        ("north", "", (NORTH, replace(NORTH, name="attic")), ["several hubs are for namespace north", "north, attic"]),
    ],
)
def test_an_unknown_hub_is_explained_in_a_sentence(
    namespace: str, named: str, hubs: tuple[NamedHub, ...], words: list[str]
) -> None:
    with pytest.raises(UnknownHubError) as caught:
        choose_hub(fleet(namespace, named), OWN, hubs)
    assert all(word in str(caught.value) for word in words), caught.value


def test_an_invalid_name_of_a_hub_is_refused() -> None:
    with pytest.raises(FleetError, match="is not the name of a hub"):
        fleet(hub="North hub")


def test_hubs_are_parsed_as_the_chart_writes_them() -> None:
    text = (
        '[{"name": "north", "address": "north:50053", "process": "north-hub", "namespaces": ["north"], "names": ["n"]}]'
    )
    assert parse_hubs(text) == (replace(NORTH, names=("n",)),)
    assert parse_hubs("") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "is not JSON"),
        ("{}", "is not an array"),
        ('[{"name": "North", "address": "a:1", "process": "p"}]', r"\[0\].name"),
        ('[{"name": "north", "process": "p"}]', r"\[0\].address: is required"),
        ('[{"name": "north", "address": "a", "process": "p"}]', "is not HOST:PORT"),
        ('[{"name": "north", "address": "a:1", "process": "p", "namespaces": "x"}]', r"\[0\].namespaces"),
        ('[{"name": "north", "address": "a:1", "process": "p", "port": 1}]', r"\[0\].port: there is no such field"),
    ],
)
def test_invalid_hubs_are_refused_with_their_place(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_hubs(text)
    with pytest.raises(ValueError, match="repeated"):
        parse_hubs('[{"name": "n", "address": "a:1", "process": "p"}, {"name": "n", "address": "b:1", "process": "q"}]')


def hubs_of(world: World) -> set[str]:
    """Return the hubs of the fleet's shards."""
    hubs: set[str] = set()
    for (kind, _), child in world.runtime.objects.items():
        if kind == "Deployment":
            (container,) = child["spec"]["template"]["spec"]["containers"]
            hubs |= {entry["value"] for entry in container["env"] if entry["name"] == "EMBEREYE_HUB"}
    return hubs


def world_of(**spec: Any) -> World:
    world = World(fleet_of(shards=2, **spec))
    world.settings = replace(SETTINGS, hubs=HUBS)
    return world


async def test_shards_and_roster_go_to_the_fleets_hub() -> None:
    world = world_of()
    await world.run_until_complete()
    assert (hubs_of(world), world.runtime.reported_hub) == ({OWN.address}, "")
    world.manifest["spec"]["hub"] = "shared"
    for _ in range(4):
        await world.step()
    assert (hubs_of(world), world.runtime.reported_hub) == ({SHARED.address}, "shared")


async def test_a_fleet_with_a_missing_hub_reports_it_and_starts_later() -> None:
    world = world_of(hub="south")
    outcome = await world.step()
    status, reason, message = condition(outcome.status, "Degraded")
    assert (status, reason) == ("True", "HubUnknown")
    assert 'no hub "south" is for namespace' in message
    assert condition(outcome.status, "Progressing")[:2] == ("False", "HubUnknown")
    assert hubs_of(world) == set()
    assert world.runtime.rosters == []
    world.settings = replace(SETTINGS, hubs=(*HUBS, NamedHub("south", "south:50053", "south-hub")))
    outcome = await world.run_until_complete()
    assert condition(outcome.status, "Covered")[0] == "True"
    assert hubs_of(world) == {"south:50053"}


async def test_running_shards_stay_with_their_hub_while_the_new_one_is_missing() -> None:
    world = world_of()
    await world.run_until_complete()
    world.manifest["spec"]["hub"] = "south"
    world.manifest["spec"]["shards"] = 3
    outcome = await world.step()
    assert condition(outcome.status, "Degraded")[1] == "HubUnknown"
    assert hubs_of(world) == {OWN.address}
    assert ("Deployment", "hall-sensors-2") not in world.runtime.objects
    assert condition(outcome.status, "Covered")[0] == "True", "shards keep watching"


async def test_a_fleets_status_says_if_its_hub_reaches_people() -> None:
    world = world_of()
    outcome = await world.run_until_complete()
    assert "Reachable" not in {each.type for each in outcome.status.conditions}, "its hub has no routes to people"
    world.runtime.hub_reaches = True
    outcome = await world.step()
    assert condition(outcome.status, "Reachable")[:2] == ("True", "RoutesWork")
    world.runtime.hub_reaches = False
    outcome = await world.step()
    status, reason, message = condition(outcome.status, "Reachable")
    assert (status, reason) == ("False", "RoutesFailing")
    assert "`embereye notify list` say which" in message
