"""The options of `embereye hub` for control, and the parts that they add to the hub.

The hub's command declares the options, and the server calls `attach` when this process owns the database. All parts
share one `Actuators`: the gRPC service, the associations, the route and the metrics. A standby replica has none of
them; it forwards the association port to the owner.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from embereye.addons.control import echo, store, stream
from embereye.addons.control.actuators import Actuators
from embereye.addons.control.associations import Associations
from embereye.addons.control.http import ActuatorRoutes, actuator_schema
from embereye.addons.control.metrics import control_metrics
from embereye.addons.control.options import OPTION, ActuatorOptions, read_actuators
from embereye.addons.control.rules import Reactions
from embereye.addons.control.service import ROLES, ControlService, handshake_recorder, worst_state
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.process.grpc_server import Service
from embereye.process.telemetry.metric import Scraped
from embereye.process.tls.folder import ServerTls
from embereye.v1.control_pb2_grpc import add_ControlServicer_to_server
from embereye.v1.echo_pb2_grpc import add_EchoServicer_to_server
from embereye_cli.options import Option, OptionGroup, declared_file
from embereye_cli.values import port_number

OPTIONS = OptionGroup(
    "control", "serve control loops with low latency (addons/control/README.md)",
    Option("--association-port", "port for control loops with low latency: delimited protobuf over TCP, or over TLS "
           "with --tls; default: none", default="0", type=port_number, metavar="PORT"),
    declared_file(OPTION, "with rules from zones to outputs of actuators, which the hub then steers"),
    Option("--association-socket", "Unix socket of the same, for processes of this user; default: none", type=Path,
           metavar="PATH"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options."""
    rules = read_actuators(arguments.actuators) if arguments.actuators else []
    return ControlAddon(arguments.association_port, arguments.association_socket, rules)


class ControlAddon(Addon):
    """Serves control and Echo over gRPC, and over associations at a port, a Unix socket, or neither."""

    def __init__(self, port: int = 0, socket: Path | None = None, rules: Sequence[ActuatorOptions] = ()) -> None:
        self._port = port  # 0: none
        self._socket = socket
        self._rules = rules

    @property
    def ports(self) -> Mapping[str, int]:
        """The port of associations; see `Addon.ports`."""
        return {"association": self._port}

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make actuators and associations; see `Addon.attach`."""
        actuators, note = Actuators(worst=worst_state(hub)), handshake_recorder(hub)
        reactions = Reactions(self._rules, actuators, hub)
        hub.offer_outputs(reactions)
        calls = {
            stream.CALL: stream.control_call(actuators, note),
            echo.CALL: echo.echo_call(),
            store.CALL: store.store_call(clips),
        }
        associations = Associations(hub.access, calls)

        async def listen(host: str, tls: ServerTls | None) -> None:
            if self._port:
                await associations.listen(host, self._port, tls)
            if self._socket:
                await associations.listen_unix(self._socket)

        return Parts(
            services=[
                Service(add_ControlServicer_to_server, ControlService(actuators, note), "embereye.v1.Control"),
                Service(add_EchoServicer_to_server, echo.EchoService(), "embereye.v1.Echo"),
            ],
            roles=ROLES,
            routes=[ActuatorRoutes(actuators)],
            schemas={"Actuator": actuator_schema()},
            collectors=[Scraped(lambda: control_metrics(actuators, associations, reactions))],
            tasks={
                "actuators": actuators.run,
                "associations": associations.run,
                "actuator-rules": reactions.run,
            },
            listen=listen,
            close=lambda: associations.close("the hub stops: dial again"),
        )
