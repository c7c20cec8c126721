"""The option of `embereye hub` for walk tests, and the parts that they add to the hub.

Walk tests need no option; `--walktest-every` says when zones are due. Reports have the signature of statements: the
same key and name of the site.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from embereye.addons.walktest.metrics import walktest_metrics
from embereye.addons.walktest.plan import Interval, read_interval
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.process.lifecycle import value_errors
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import Option, OptionGroup

OPTION = "--walktest-every"
KEY = "--statement-key"
OPTIONS = OptionGroup(
    "walk tests", "trigger each device of a zone (addons/walktest/README.md)",
    Option(OPTION, "how often each device is to be triggered in a walk test, such as 90d, or hall-*=90d for some "
           "zones; repeatable, the last pattern counts; default: never due", metavar="[ZONE=]DAYS", is_list=True,
           for_up=True),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if one is wrong."""
    with value_errors(f"{OPTION} "):
        intervals = [read_interval(text) for text in arguments.walktest_every]
    key = getattr(arguments, "statement_key", None) or arguments.data / "statement-key"
    return WalkTestAddon(intervals, getattr(arguments, "site", "main"), key)


class WalkTestAddon(Addon):
    """Lets people test the zones."""

    metrics = "embereye_hub_walktest"

    def __init__(self, intervals: Sequence[Interval], site: str, key: Path) -> None:
        self._intervals = intervals
        self._site = site
        self._key = key

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the walk tests; see `Addon.attach`. UserError if the key cannot be used."""
        from embereye.addons.walktest.http import WalkTestRoutes
        from embereye.addons.walktest.keeper import WalkTestOptions, WalkTests
        from embereye.process.signing import prepare_key

        tests = WalkTests(WalkTestOptions(self._site, prepare_key(self._key, KEY), self._intervals), hub)
        hub.add_part(tests)
        return Parts(
            routes=[WalkTestRoutes(tests)],
            collectors=[Scraped(lambda: walktest_metrics(tests))],
            tasks={"walktest": tests.run},
        )
