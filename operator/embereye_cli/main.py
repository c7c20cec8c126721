"""The `embereye` command: one name for every process and tool."""

import argparse
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from embereye.process import environment
from embereye.process.lifecycle import UserError
from embereye.process.telemetry import logs
from embereye.process.telemetry.profiling import pin, profiled

# command → (module with add_arguments and run, one sentence). Modules are imported only for the command that runs.
COMMANDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("up",): ("embereye_cli.processes.up", "run fleets on this machine: operator, hub and shards as local processes"),
    ("service", "install"): ("embereye_cli.service.install", "have systemd run `up` on this machine from now on"),
    ("service", "remove"): ("embereye_cli.service.remove", "have systemd stop and forget it"),
    ("operator",): ("embereye_cli.processes.operator", "run the Kubernetes operator"),
    ("hub",): ("embereye_cli.processes.hub", "run the hub: evidence in, alarms and the console out"),
    ("hub", "backup"): ("embereye_cli.hub_history.backup", "write what a hub has stored into a file, while it runs"),
    ("hub", "restore"): ("embereye_cli.hub_history.restore", "fill a hub's database from such a file"),
    ("hub", "migrate"): ("embereye_cli.hub_history.migrate", "move what a hub has stored into another database"),
    ("shard", "sensor"): ("embereye_cli.processes.shard_sensor", "run one sensor shard"),
    ("shard", "camera"): ("embereye_cli.processes.shard_camera", "run one camera shard"),
    ("simulate", "sensors"): ("embereye_cli.simulate.sensors", "simulate thermal/gas sensors over the real protocol"),
    ("simulate", "head"): ("embereye_cli.simulate.head", "simulate a pan-tilt head that a controller steers"),
    ("control", "demo"): ("embereye_cli.control.demo", "steer a simulated head, and see what each turn costs"),
    ("simulate", "cameras"): ("embereye_cli.simulate.cameras", "simulate cameras over HTTP MJPEG or gRPC"),
    ("bench",): ("embereye_bench.calibrate", "measure this machine"),
    ("bench", "sensors"): ("embereye_bench.sensors.command", "measure the sensor path against baselines"),
    ("bench", "cameras"): ("embereye_bench.cameras.command", "measure the camera path against baselines"),
    ("bench", "hub"): (
        "embereye_bench.hub.command",
        "measure the hub against baselines",
    ),
    ("bench", "heat"): ("embereye_bench.heat", "play simulated fires to the thermal path"),
    ("bench", "plan"): ("embereye_bench.planned", "hold `embereye plan` against real runs"),
    ("bench", "record"): ("embereye_bench.results.record", "measure rows and keep them, with machine and commit"),
    ("bench", "compare"): ("embereye_bench.results.compare", "show two records side by side, noise told apart"),
    ("bench", "gate"): ("embereye_bench.results.gate", "measure against the newest record; fail where a row got worse"),
    ("request",): ("embereye_cli.devices.request", "have a sensor send a frame or its calibration now"),
    ("bench", "detection"): ("embereye_bench.detection.command", "score flame and smoke detection on labelled clips"),
    ("explain", "alarm"): ("embereye_cli.explain.alarm", "tell how an alarm came about, and whether it would again"),
    ("explain", "device"): ("embereye_cli.explain.device", "say what became of everything a device sent"),
    ("plan",): ("embereye_cli.plan", "say how many shards, cores and megabytes fleets take, with the arithmetic"),
    ("discover",): ("embereye_cli.devices.discover", "look for cameras in the network, and print a fleet of them"),
    ("access",): ("embereye_cli.hub.access", "say who may do what: make, list and revoke tokens"),
    ("webhooks",): ("embereye_cli.hub.webhooks", "see how webhooks fare, and send again what they could not deliver"),
    ("subscriptions",): (
        "embereye_cli.hub.subscriptions",
        "keep what somebody wants to be told of under a name, and follow it",
    ),
    ("alarms",): ("embereye_cli.hub.alarms", "watch, list and acknowledge alarms"),
    ("detect",): ("embereye_cli.devices.detect", "look for fire in recordings, and say why it is or is not one"),
    ("dashboards", "render"): (
        "embereye_cli.dashboards",
        "write dashboards and alert rules as files",
    ),
    ("explain", "fleet"): ("embereye_cli.explain.fleet", "say why a fleet has as many shards as it has"),
    ("explain", "replay"): ("embereye_cli.explain.replay", "decide once more on a recorded scaling trace"),
    ("bench", "operator"): ("embereye_bench.operator.command", "measure the operator against a real API server"),
    ("calibrate", "gas"): ("embereye_cli.devices.calibrate_gas", "measure a gas sensor's R0 in clean air"),
    ("self-test",): ("embereye_cli.cluster.self_test", "prove an alarm from end to end in a cluster"),
    ("inspect",): ("embereye_cli.devices.inspect_capture", "explain a capture of a device's bytes"),
}
GROUPS = {
    "calibrate": "find out what is a device's own",
    "control": "steer actuators",
    "dashboards": "have Grafana's dashboards and alert rules",
    "explain": "say how something came about",
    "service": "run `up` as a service of this machine",
    "shard": "run one shard",
    "simulate": "simulate devices over the real protocols",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and where help is, instead of printing the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"embereye: {message}; see {self.prog} --help\n")


def _describe(name: str) -> str:
    return next((text for words, (_, text) in COMMANDS.items() if words == (name,)), GROUPS.get(name, ""))


def _command_of(arguments: Sequence[str]) -> tuple[str, ...] | None:
    found = [words for words in COMMANDS if tuple(arguments[: len(words)]) == words]
    return max(found, key=len, default=None)


def _overview() -> argparse.ArgumentParser:
    parser = _Parser(prog="embereye", description="Fire watching: sensors and cameras in, alarms people can trust out.")
    parser.add_argument("--version", action="store_true", help="show which version this is, and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in dict.fromkeys(words[0] for words in COMMANDS):
        group = commands.add_parser(name, help=_describe(name), prog=f"embereye {name}")
        if name in GROUPS:
            kinds = group.add_subparsers(metavar="KIND", required=True)
            for words, (_, text) in COMMANDS.items():
                if words[0] == name and len(words) > 1:
                    kinds.add_parser(words[1], help=text)
    return parser


def _add_commands_below(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> None:
    """Name the commands that begin with `words`, which are a command themselves: in help, and where none is meant."""
    below = {longer[-1]: text for longer, (_, text) in COMMANDS.items() if longer[:-1] == words}
    if below:
        commands = parser.add_subparsers(metavar="COMMAND", dest="command_below", title="commands")
        for name, text in below.items():
            commands.add_parser(name, help=text, add_help=False)


def _add_process_options(parser: argparse.ArgumentParser) -> None:
    """Options about this process itself, for whoever looks for where its time and memory go."""
    group = parser.add_argument_group("this process")
    group.add_argument("--cpus", metavar="LIST", help="run on these processors alone, such as 0,2-3; children, too")
    group.add_argument("--profile", type=Path, metavar="FILE", help="write where its time goes, for pstats or snakeviz")
    group.add_argument("--allocations", type=Path, metavar="FILE", help="write which lines hold memory at the end")


def _end(number: int, _: object) -> NoReturn:
    """End a container that is not needed any more while it starts; what runs later has handlers of its own.

    To the first process of a container a signal that it does not handle never comes: it would run until it is killed.
    """
    raise SystemExit(128 + number)


def _prepare_streams() -> None:
    """Have standard streams that everything can be written to.

    The number of one that whoever began us closed would go to a socket, which libuv takes for a reason to abort. A
    terminal that has no "°" or "λ" gets their codes.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (default: the process's) name; returns the exit code."""
    return run_process(lambda: _main(arguments))


def run_process(command: Callable[[], int]) -> int:
    """Run all that this process is for; returns the exit code, also where nobody reads on, or it is interrupted."""
    _prepare_streams()
    code = 0
    try:
        code = command()
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        code = _unwritten(error)
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            code = _unwritten(error) or code
    return code


def _unwritten(error: OSError) -> int:
    """The exit code where standard output takes no more: 0 where nobody reads on; raises `error` where it is another.

    Whoever read it has seen enough, as `head` does. Of a file that finds no room the name would be told.
    """
    broken = isinstance(error, BrokenPipeError)
    if not broken and (error.errno != errno.ENOSPC or error.filename is not None):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # at the interpreter's end what is left would fail again
    if broken:
        return 0
    print(f"embereye: the output cannot be written: {error.strerror}", file=sys.stderr)
    return 1


def _main(arguments: Sequence[str] | None) -> int:
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
    environment.prepare()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["--version"]:
        from importlib.metadata import version

        print(f"embereye {version('embereye')}")
        return 0
    words = _command_of(arguments)
    if words is None:
        _overview().parse_args(arguments)
        return 2
    module_name, text = COMMANDS[words]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != "embereye_bench":
            raise
        print(
            "embereye: benchmarks are not installed here: run them from a checkout, where make install puts them",
            file=sys.stderr,
        )
        return 2
    parser = _Parser(prog=f"embereye {' '.join(words)}", description=module.__doc__ or text)
    module.add_arguments(parser)
    parser.add_argument(
        "--log-format",
        choices=logs.FORMATS,
        default=os.environ.get(logs.FORMAT_VARIABLE) or "text",
        help=f"of what is logged; json has fleet, shard, device and zone as fields [{logs.FORMAT_VARIABLE}]",
    )
    _add_process_options(parser)
    _add_commands_below(parser, words)
    parsed = parser.parse_args(arguments[len(words) :])
    if below := getattr(parsed, "command_below", None):
        parser.error(f"options go behind the command: embereye {' '.join(words)} {below} …")
    _check_defaults(parser, parsed)
    os.environ[logs.FORMAT_VARIABLE] = parsed.log_format
    return _run(module.run, parsed)


def _check_defaults(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """Refuse a variable that is none of its option's choices: of a default argparse asks nothing."""
    for action in parser._actions:
        value = getattr(parsed, action.dest, None)
        if action.choices and isinstance(action.default, str) and value not in action.choices:
            parser.error(
                f'{action.option_strings[0]} "{value}" is not one of {", ".join(filter(None, action.choices))}'
            )


def _run(command: Callable[[argparse.Namespace], int], parsed: argparse.Namespace) -> int:
    try:
        pin(parsed.cpus)
        with profiled(parsed.profile, parsed.allocations):
            return int(command(parsed))
    except UserError as error:
        print(f"embereye: {logs.visible(str(error))}", file=sys.stderr)
        return error.exit_code
