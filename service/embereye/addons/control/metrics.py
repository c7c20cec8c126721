"""The metrics of control and of associations.

`Actuators` and `Associations` count in plain attributes; `control_metrics` reads them at each scrape.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.addons.control.actuators import Actuators
from embereye.addons.control.associations import Associations
from embereye.addons.control.rules import Reactions
from embereye.process.telemetry.metric import counter, gauge

ACTUATORS = gauge("embereye_hub_control_actuators", "Actuators that are connected.")
ACTUATORS_SILENT = gauge("embereye_hub_control_actuators_silent", "Connected actuators that are silent.")
CONTROLLERS = gauge("embereye_hub_control_controllers", "Controllers that steer an actuator.")
CONTROL_STATES = counter("embereye_hub_control_states_total", "States that actuators sent.")
CONTROL_COMMANDS = counter("embereye_hub_control_commands_total", "Commands that took effect.")
CONTROL_MISSED = counter("embereye_hub_control_missed_total", "Commands that missed their deadline.")
CONTROL_FALLBACKS = counter("embereye_hub_control_fallbacks_total", "Times that safe values replaced a controller's.")
CONTROL_REFUSED = counter(
    "embereye_hub_control_refused_total", "Control sessions that ended because of an invalid message."
)
ASSOCIATIONS = gauge("embereye_hub_associations", "Associations that are open.")
ASSOCIATIONS_REFUSED = counter("embereye_hub_associations_refused_total", "Associations that were refused.")
RULES_FAILING = gauge(
    "embereye_hub_control_rules_failing", "1 while an actuator does not follow the hub's rules.", ["actuator"]
)


def control_metrics(actuators: Actuators, associations: Associations, reactions: Reactions) -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_control_ or embereye_hub_associations."""
    counts, connected, now = actuators.counts, actuators.all, actuators.steady()
    yield ACTUATORS.value(len(connected))
    yield ACTUATORS_SILENT.value(sum(actuator.is_silent(now) for actuator in connected))
    yield CONTROLLERS.value(sum(actuator.controller is not None for actuator in connected))
    yield CONTROL_STATES.value(counts.states)
    yield CONTROL_COMMANDS.value(counts.commands)
    yield CONTROL_MISSED.value(counts.missed)
    yield CONTROL_FALLBACKS.value(counts.fallbacks)
    yield CONTROL_REFUSED.value(counts.refused)
    yield RULES_FAILING.counts({each.options.name: bool(each.failing) for each in reactions.all})
    yield ASSOCIATIONS.value(len(associations))
    yield ASSOCIATIONS_REFUSED.value(associations.refused)
