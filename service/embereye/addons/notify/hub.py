"""The option of `embereye hub` for notifications, and the parts that it adds to the hub.

Only the hub that owns the database notifies. Its state is in the database, so a standby that takes over continues.
Apprise and YAML are imported only if the option is used.
"""

from argparse import Namespace

from embereye.addons.notify.metrics import notify_metrics
from embereye.addons.notify.options import NotifyOptions, Route
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.process.extras import needed_by
from embereye.process.telemetry.metric import Scraped, unsampled
from embereye_cli.options import OptionGroup, declared_file

METRICS = "embereye_hub_notify_"  # begins their names
SCRIPTS = ("siren.js", "notify.js")  # that the console loads
SCRIPTS_WITHOUT_ROUTES = ("siren.js", "undeclared.js")
OPTIONS = OptionGroup(
    "notifications", "notify people of alarms (addons/notify/README.md)",
    declared_file("--notify", "with routes to people and escalations"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong, or Apprise is missing."""
    if not arguments.notify:
        return NotifyAddon(None)
    from embereye.addons.notify.config import read_config

    options = read_config(arguments.notify)
    with needed_by("--notify", "Apprise", "notify"):
        from embereye.addons.notify.channel import check_routes
    check_routes(options)
    if any(duty.calendar for duty in options.duties.values()):
        from embereye.addons.notify.calendars import check_library

        check_library()
    return NotifyAddon(options)


class NotifyAddon(Addon):
    """Notifies people of alarms and faults, if `options` declare routes. The console's siren needs none."""

    def __init__(self, options: NotifyOptions | None) -> None:
        self._options = options

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the notifier; see `Addon.attach`."""
        from embereye.hub.http.console_files import console_files

        if self._options is None:
            files = console_files(__package__, *SCRIPTS_WITHOUT_ROUTES)
            return Parts(routes=[files], collectors=[Scraped(lambda: unsampled(METRICS))])
        from embereye.addons.notify.channel import Channel
        from embereye.addons.notify.http import NotifyRoutes, schemas
        from embereye.addons.notify.notifier import Notifier
        from embereye.addons.notify.webpush import Devices, PushChannel
        from embereye.units import SECOND

        def clock() -> float:
            return (hub.timeline.now_ns() + hub.timeline.stepped_ns()) / SECOND

        devices = Devices(lambda: notifier.rows, hub.coverage.book, hub.access)

        def make(route: Route) -> Channel:
            return (
                PushChannel(route, clock, devices, options.public_url) if route.is_web_push else Channel(route, clock)
            )

        options = self._options
        notifier = Notifier(options, hub, make)
        hub.add_part(notifier)
        hub.set_routes(notifier.proved, lambda: not notifier.reachable().problems)
        return Parts(
            routes=[NotifyRoutes(notifier, devices), console_files(__package__, *SCRIPTS)],
            schemas=schemas(),
            collectors=[Scraped(lambda: notify_metrics(notifier))],
            tasks={"notify": notifier.run},
        )
