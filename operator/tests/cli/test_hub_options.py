"""How the hub is asked may be said before a command's action or behind it."""

from argparse import ArgumentParser

import pytest

from embereye_cli.hub import access, alarms, subscriptions, webhooks

OPTIONS = ["--hub", "hub:1", "--json", "--token", "@file", "--ca", "ca.crt", "--server-name", "hub"]
ACTIONS = [
    (access, ["create", "second", "--role", "operator"]),
    (access, ["link"]),
    (alarms, ["history", "--limit", "5"]),
    (alarms, ["ack", "hall"]),
    (subscriptions, ["show", "night"]),
    (webhooks, ["resend", "pager", "4", "5"]),
]


@pytest.mark.parametrize(("command", "action"), ACTIONS, ids=lambda each: each[0] if isinstance(each, list) else "")
def test_options_of_the_hub_stand_before_an_action_or_behind_it(command, action):
    parser = ArgumentParser(prog="embereye command")
    command.add_arguments(parser)
    before = parser.parse_args([*OPTIONS, *action])
    assert (before.hub, before.json, before.token, before.ca, before.server_name) == (
        "hub:1", True, "@file", "ca.crt", "hub"
    )  # fmt: skip
    assert parser.parse_args([*action, *OPTIONS]) == before
    assert parser.parse_args([*OPTIONS[:2], *action, *OPTIONS[2:]]) == before
    assert parser.parse_args(action).json is False


def test_an_actions_help_says_where_the_options_of_the_hub_are_explained(capsys):
    parser = ArgumentParser(prog="embereye access")
    access.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["create", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--server-name, of `embereye access --help`, may stand here as well" in told
