"""The `embereye` command: one name for every process and tool.

COMMANDS maps the words of each command to its module. Only the module of the chosen command is imported, so every
command starts fast, and a missing package matters only to its commands. A module has `add_arguments` and `run`, and its
docstring is the text of `--help`. A UserError of a command is printed as one sentence, and its class determines the
exit code. Add-ons add their commands to the same table.
"""

import argparse
import errno
import importlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from embereye.process import environment
from embereye.process.addons import addon_modules
from embereye.process.lifecycle import UserError, print_error
from embereye.process.telemetry import logs
from embereye.process.telemetry.profiling import pin, profiled
from embereye_cli.parser import Parser, did_you_mean

Words = tuple[str, ...]

# command → (module with add_arguments and run, one sentence). Modules are imported only for the command that runs.
COMMANDS: dict[Words, tuple[str, str]] = {
    ("init",): ("embereye_cli.setup.init", "write a site's files, check everything, and start watching"),
    ("doctor",): ("embereye_cli.setup.doctor", "check ports, clock, disk, cameras, brokers and routes to people"),
    ("up",): ("embereye_cli.processes.up", "run fleets on this machine: hub, shards and console"),
    ("service", "install"): ("embereye_cli.service.install", "run `up` as a systemd service from now on"),
    ("service", "remove"): ("embereye_cli.service.remove", "stop and delete that service"),
    ("alarms",): ("embereye_cli.hub.alarms", "list zones; watch, acknowledge and reset alarms; fetch clips"),
    ("subscriptions",): ("embereye_cli.hub.subscriptions", "manage saved alarm filters, and follow them"),
    ("webhooks",): ("embereye_cli.hub.webhooks", "list webhooks, test them, resend failed deliveries"),
    ("access",): (
        "embereye_cli.hub.access",
        "create, list and revoke tokens; print sign-in links; show the audit trail",
    ),
    ("explain", "alarm"): ("embereye_cli.explain.alarm", "show how an alarm came about, and replay the decision"),
    ("explain", "device"): ("embereye_cli.explain.device", "show if a device is watched, and what it sent"),
    ("explain", "quiet"): ("embereye_cli.explain.quiet", "show why a device raised no alarm in a minute"),
    ("explain", "fleet"): ("embereye_cli.explain.fleet", "show why a fleet has as many shards as it has"),
    ("explain", "replay"): ("embereye_cli.explain.replay", "replay the decisions of a recorded scaling trace"),
    ("incident", "save"): ("embereye_cli.incident.save", "save an alarm with its recordings, to check later versions"),
    ("incident", "check"): ("embereye_cli.incident.check", "decide saved alarms again, and fail if any differs"),
    ("detection", "diff"): (
        "embereye_cli.detection.diff",
        "list what only a candidate, or only the detection in force, found",
    ),
    ("report", "quality"): ("embereye_cli.report.quality", "show how often the hub raises false alarms"),
    ("plan",): ("embereye_cli.plan", "estimate the hardware that fleets need"),
    ("discover",): ("embereye_cli.devices.discover", "find ONVIF cameras on the network and print a fleet of them"),
    ("camera", "probe"): (
        "embereye_cli.devices.probe",
        "find a camera's streams, measure them, and print a fleet of it",
    ),
    ("fleet", "import"): ("embereye_cli.devices.fleet_import", "make a list of devices from a spreadsheet"),
    ("fleet", "export"): ("embereye_cli.devices.fleet_export", "print the devices of fleets as a table"),
    ("credentials", "set"): ("embereye_cli.devices.credentials", "store a user and password for cameras or a broker"),
    ("sensor", "map"): ("embereye_cli.devices.sensor_map", "try out how the messages of a sensor are read"),
    ("sensor", "try"): ("embereye_cli.devices.sensor_try", "read a declared sensor, and print its newest reading"),
    ("detect",): ("embereye_cli.devices.detect", "find fire in recordings and streams, and explain each detection"),
    ("inspect",): ("embereye_cli.devices.inspect_capture", "decode a capture of a sensor's bytes"),
    ("request",): ("embereye_cli.devices.request", "request a frame or the calibration from a sensor"),
    ("calibrate", "gas"): ("embereye_cli.devices.calibrate_gas", "measure a gas sensor's R0 in clean air"),
    ("simulate", "sensors"): (
        "embereye_cli.simulate.sensors",
        "simulate thermal and gas sensors over the real protocol",
    ),
    ("simulate", "cameras"): ("embereye_cli.simulate.cameras", "simulate cameras over HTTP, RTSP, RTP or gRPC"),
    ("self-test",): ("embereye_cli.cluster.self_test", "prove in a cluster that a fire becomes an alarm"),
    ("dashboards", "render"): ("embereye_cli.dashboards", "write Grafana dashboards and alert rules as files"),
    ("hub",): ("embereye_cli.processes.hub", "run the hub: evidence in, alarms and the console out"),
    ("hub", "backup"): ("embereye_cli.hub_history.backup", "write a hub's stored history to a file while it runs"),
    ("hub", "restore"): ("embereye_cli.hub_history.restore", "fill a hub's database from such a file"),
    ("hub", "migrate"): ("embereye_cli.hub_history.migrate", "move a hub's stored history to another database"),
    ("shard", "sensor"): ("embereye_cli.processes.shard_sensor", "run one sensor shard"),
    ("shard", "camera"): ("embereye_cli.processes.shard_camera", "run one camera shard"),
    ("operator",): ("embereye_cli.processes.operator", "run the Kubernetes operator"),
    ("bench",): ("embereye_bench.calibrate", "measure this machine (from a checkout)"),
    ("bench", "sensors"): ("embereye_bench.sensors.command", "measure the sensor path against baselines"),
    ("bench", "cameras"): ("embereye_bench.cameras.command", "measure the camera path against baselines"),
    ("bench", "hub"): ("embereye_bench.hub.command", "measure the hub against baselines"),
    ("bench", "heat"): ("embereye_bench.heat", "play simulated fires to the thermal path"),
    ("bench", "plan"): ("embereye_bench.planned", "compare `embereye plan` with real runs"),
    ("bench", "detection"): ("embereye_bench.detection.command", "score flame and smoke detection on labelled clips"),
    ("bench", "operator"): ("embereye_bench.operator.command", "measure the operator against a real API server"),
    ("bench", "record"): ("embereye_bench.results.record", "measure rows and store them, with machine and commit"),
    ("bench", "compare"): ("embereye_bench.results.compare", "compare two records, and separate noise from change"),
    ("bench", "gate"): (
        "embereye_bench.results.gate",
        "measure this tree and an older commit in turns",
    ),
    ("completion",): ("embereye_cli.completion", "print shell completion for bash, zsh or fish"),
}
GROUPS = {
    "service": "run `up` as a systemd service of this machine",
    "camera": "try out a camera",
    "sensor": "try out a sensor",
    "fleet": "make lists of devices from spreadsheets, and back",
    "credentials": "store users and passwords for fleets",
    "explain": "explain an alarm, or why there was none, a device or a fleet's size",
    "incident": "save and export alarms, and decide saved ones again",
    "detection": "compare a candidate with the detection in force",
    "report": "report on how well a site is watched",
    "calibrate": "calibrate a sensor",
    "simulate": "simulate devices over their real protocols",
    "dashboards": "write Grafana dashboards and alert rules",
    "shard": "run one shard",
}
# The overview's headings, and the first words of the commands under each.
SECTIONS = {
    "Watch": ("init", "doctor", "up", "service", "alarms", "subscriptions", "webhooks", "access"),
    "Understand": ("explain", "incident", "detection", "report", "plan", "detect", "inspect", "self-test"),
    "Set up devices": ("discover", "camera", "sensor", "fleet", "credentials", "request", "calibrate", "simulate"),
    "Processes": ("hub", "shard", "operator"),
    "Tools": ("dashboards", "bench", "completion"),
}
for addon in addon_modules("commands"):
    COMMANDS |= addon.COMMANDS
    GROUPS = getattr(addon, "GROUPS", {}) | GROUPS  # a group may have commands of several
    SECTIONS |= {
        heading: tuple(dict.fromkeys((*SECTIONS[heading], *names))) for heading, names in addon.SECTIONS.items()
    }
# Packages that are installed apart from the service, and how to get them.
MISSING = {
    "embereye_bench": "benchmarks are not installed: run them from a checkout, after make install",
    "embereye.sim": (
        "the simulators are not installed: install the wheel embereye_simulate of this release, or use the image "
        "TAG-simulate"
    ),
}
PROCESSES = {"up", "hub", "shard", "operator", "simulate"}  # commands that log while they run
EXIT_CODES = "exit codes: 0 done, 1 the answer is no, 2 usage, 3 unreachable, 4 refused, 5 not found"
ANYWHERE = ("--json", "--utc")  # options that may be written before the command too


def _sentence_of(name: str) -> str:
    return GROUPS.get(name) or COMMANDS[name,][1]


def command_of(arguments: Sequence[str]) -> Words | None:
    """The longest command that `arguments` begin with."""
    matches = [words for words in COMMANDS if tuple(arguments[: len(words)]) == words]
    return max(matches, key=len, default=None)


def overview() -> str:
    """The help of `embereye` itself."""
    lines = [
        "usage: embereye COMMAND [OPTION…]",
        "",
        "Fire watching: sensors and cameras in, alarms people can trust out.",
    ]
    for heading, names in SECTIONS.items():
        lines += ["", heading, *(f"  {name:<14} {_sentence_of(name)}" for name in names)]
    lines += [
        "",
        "`embereye help COMMAND` explains a command. -V, --version: print the version.",
        "--json: print JSON. --utc: print times in UTC.",
        f"{EXIT_CODES[0].upper()}{EXIT_CODES[1:]}.",
    ]
    return "\n".join(lines)


def _group_overview(group: str) -> str:
    """The help of a word that is no command alone, such as `explain`."""
    below = {words[1]: sentence for words, (_, sentence) in COMMANDS.items() if words[0] == group and len(words) > 1}
    lines = [f"usage: embereye {group} KIND [OPTION…]", "", f"{GROUPS[group][0].upper()}{GROUPS[group][1:]}.", ""]
    lines += [f"  {name:<14} {sentence}" for name, sentence in below.items()]
    return "\n".join(lines)


def _usage_error(sentence: str, words: Sequence[str] = ()) -> int:
    print(f"embereye: {logs.visible(sentence)}\nSee: {' '.join(['embereye', *words, '--help'])}", file=sys.stderr)
    return 2


def _explain_unknown(arguments: Sequence[str]) -> int:
    """Print the overview, or what is wrong with words that begin with no command; return the exit code."""
    first = arguments[0]
    if first in GROUPS:
        kinds = [words[1] for words in COMMANDS if words[0] == first and len(words) > 1]
        if len(arguments) == 1:
            print(_group_overview(first), file=sys.stderr)
            return 2
        if arguments[1] in {"-h", "--help"}:
            print(_group_overview(first))
            return 0
        listed = f"{first} {arguments[1]}: not one of {', '.join(kinds)}."
        return _usage_error(f"{listed}{did_you_mean(arguments[1], kinds)}", [first])
    if first.startswith("-"):
        return _usage_error(f"{first}: there is no such option before a command.")
    known = {*(words[0] for words in COMMANDS), "help", "version"}
    return _usage_error(f"{first}: there is no such command.{did_you_mean(first, known)}")


def command_parser(words: Words) -> Parser:
    """The parser of one command, whose module is imported. ModuleNotFoundError."""
    module_name, sentence = COMMANDS[words]
    module = importlib.import_module(module_name)
    parser = Parser(prog=f"embereye {' '.join(words)}", description=module.__doc__ or sentence, epilog=EXIT_CODES)
    parser.set_defaults(run=module.run)
    module.add_arguments(parser)
    _add_common_options(parser, words)
    _add_commands_below(parser, words)
    return parser


def _add_commands_below(parser: argparse.ArgumentParser, words: Words) -> None:
    """Name the commands that begin with `words`, which are a command themselves, in help and in suggestions."""
    below = {longer[-1]: sentence for longer, (_, sentence) in COMMANDS.items() if longer[:-1] == words}
    if below:
        commands = parser.add_subparsers(metavar="COMMAND", dest="command_below", title="commands")
        for name, sentence in below.items():
            commands.add_parser(name, help=sentence, add_help=False)


def _add_common_options(parser: argparse.ArgumentParser, words: Words) -> None:
    """Declare the options of every command; those for developers are hidden from help."""
    parser.add_argument(
        "--log-format",
        choices=logs.FORMATS,
        default=os.environ.get(logs.FORMAT_VARIABLE) or "text",
        help=f"format of log lines; json has fleet, shard, device and zone as fields [{logs.FORMAT_VARIABLE}]"
        if words[0] in PROCESSES
        else argparse.SUPPRESS,
    )
    parser.add_argument("--utc", action="store_true", help="print times in UTC instead of local time")
    for option, kind in (("--cpus", str), ("--profile", Path), ("--allocations", Path)):
        parser.add_argument(option, type=kind, help=argparse.SUPPRESS)
    for action in parser._actions:  # the options work after an action's name too
        if isinstance(action, argparse._SubParsersAction):
            for chosen in action.choices.values():
                chosen.add_argument("--utc", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _end(number: int, _: object) -> NoReturn:
    """End a container that is stopped while it starts.

    The kernel does not deliver an unhandled signal to the first process of a container: it would run until it is
    killed. Later, the command's own handlers replace this one.
    """
    raise SystemExit(128 + number)


def _prepare_streams() -> None:
    """Make sure that everything can be written to the standard streams.

    If a stream is closed, its number would go to a socket, and libuv aborts on that. A terminal that cannot show "°" or
    "λ" gets their codes.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (default: the process's) name; return the exit code."""
    return run_process(lambda: _main(arguments))


def run_process(command: Callable[[], int]) -> int:
    """Run `command`; return its exit code, also if its reader leaves or somebody interrupts it."""
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
    """The exit code if standard output cannot be written: 0 if its reader left, as `head` does. Raises other errors."""
    broken = isinstance(error, BrokenPipeError)
    if not broken and (error.errno != errno.ENOSPC or error.filename is not None):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter's last flush would fail again
    if broken:
        return 0
    print(f"embereye: the output cannot be written: {error.strerror}", file=sys.stderr)
    return 1


def _main(arguments: Sequence[str] | None) -> int:
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
    environment.prepare()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if "_ARGCOMPLETE" in os.environ:
        importlib.import_module("embereye_cli.completion").complete()
    front = arguments[: _front_length(arguments)]
    arguments = arguments[len(front) :]
    match arguments:
        case [] | ["help"] | ["-h" | "--help"]:
            print(overview())
            return 0
        case ["version"] | ["-V" | "--version"]:
            from importlib.metadata import version

            print(f"embereye {version('embereye')}")
            return 0
        case ["help", *rest]:
            arguments = [*rest, "--help"]
    words = command_of(arguments)
    if words is None:
        return _explain_unknown(arguments)
    try:
        parser = command_parser(words)
    except ModuleNotFoundError as error:
        if error.name not in MISSING:
            raise
        print(f"embereye: {MISSING[error.name]}", file=sys.stderr)
        return 2
    parsed = parser.parse_args([*front, *arguments[len(words) :]])
    if below := getattr(parsed, "command_below", None):
        parser.error(f"options go after the command: embereye {' '.join(words)} {below} …")
    _check_defaults(parser, parsed)
    os.environ[logs.FORMAT_VARIABLE] = parsed.log_format
    if parsed.utc:
        os.environ["TZ"] = "UTC"
        time.tzset()
    return _run(parsed)


def _front_length(arguments: Sequence[str]) -> int:
    """The number of options before the command that may be written there."""
    return next((index for index, word in enumerate(arguments) if word not in ANYWHERE), len(arguments))


def _check_defaults(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """Refuse an environment variable that is no choice of its option: argparse does not check defaults."""
    for action in parser._actions:
        value = getattr(parsed, action.dest, None)
        if action.choices and isinstance(action.default, str) and value not in action.choices:
            parser.error(f"{action.option_strings[0]}: {value}: not one of {', '.join(filter(None, action.choices))}.")


def _run(parsed: argparse.Namespace) -> int:
    try:
        pin(parsed.cpus)
        with profiled(parsed.profile, parsed.allocations):
            return int(parsed.run(parsed))
    except UserError as error:
        return print_error(error)
