"""Run the Kubernetes operator: it watches fleets and runs their shards as declared."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.lifecycle import UserError, value_errors
from embereye_cli.options import Option, add_options, options_of
from embereye_cli.parser import did_you_mean
from embereye_cli.values import duration_or_seconds, port_number, seconds, size, split_names
from embereye_operator.decide.hubs import NamedHub, parse_hubs
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.ownership.holding import TAKE_OVER
from embereye_operator.decide.rollout.turns import DEFAULT_QUESTIONS, QUESTIONS, Question
from embereye_operator.process import OperatorOptions, serve

# fmt: off
OPTIONS = (
    Option("--watch-nodes", "with --namespace: also move shards off drained or lost nodes (needs list and watch on "
           "nodes, and get on Leases in kube-node-lease)", is_flag=True),
    Option("--fleet-selector", "manage only fleets with these labels, for example site=north", metavar="SELECTOR"),
    Option("--take-over-after", "take over the fleets of another operator if its Lease has not changed for this long",
           default=f"{TAKE_OVER:g}", type=seconds, metavar="SECONDS"),
    Option("--hub", "host:port of the hub's control port, as shards reach it", default="embereye-hub:50053"),
    Option("--hubs", "more hubs, as a list of {name, address, process, namespaces, names}. A hub serves the fleets of "
           "its namespaces, and those that name it in spec.hub. process is its name in its certificate",
           metavar="JSON"),
    Option("--image", "image of the shards"),
    Option("--image-pull-policy", "pull policy of the shards; empty: Kubernetes' default",
           choices=["", "Always", "IfNotPresent", "Never"]),
    Option("--image-pull-secrets", "Secrets in each fleet's namespace for pulling the shards' image, added to the "
           "fleet's", metavar="NAME,…"),
    Option("--shard-user", "number of the user and group that shards run as; none: the cluster chooses, as OpenShift "
           "does; default: %(default)s", default=str(Settings.user), metavar="ID"),
    Option("--shard-host", "address that shards listen on; empty: every address, IPv4 and IPv6"),
    Option("--lease", "Lease for several operators, of which only its holder acts; empty: there is only one",
           metavar="[NAMESPACE/]NAME"),
    Option("--release", "prefix of two Secrets in the Lease's namespace, created if missing: NAME-ca with the "
           "certificate authority, NAME-hub-identity with the hub's certificate; default: embereye",
           default=OperatorOptions.release, metavar="NAME"),
    Option("--authority-secret", "Secret in the Lease's namespace with a certificate authority, from cert-manager for "
           "example; empty: the operator creates an authority", metavar="NAME"),
    Option("--hub-names", "names and addresses that people use for the hub, for its certificate", metavar="NAME,…"),
    Option("--role", "the operator's ClusterRole, or Role with --namespace: disruption budgets are deleted with it, "
           "and half an hour after the operator stops; empty: they remain with their fleets"),
    Option("--prometheus", "URL of the Prometheus that KEDA queries for fleets with autoscaling.mode keda",
           default=Settings.prometheus),
    Option("--scrape-annotations", "annotate the shards' Services with prometheus.io/*", is_flag=True),
    Option("--scaling-trace", "folder to record the inputs of scaling in, for `embereye explain replay`",
           type=Path, metavar="DIR"),
    Option("--scaling-trace-size", "largest size of that folder, for example 500M or 2G; the oldest records are "
           "deleted (%(default)s)", default="1G", type=size, metavar="SIZE"),
    Option("--rollout-max-fleets", "fleets that roll out a new --image at the same time, after the first one",
           default="5", type=int, metavar="COUNT"),
    Option("--rollout-delay", "pause between the roll-outs of two fleets",
           default="10s", type=duration_or_seconds, metavar="DURATION"),
    Option("--rollout-halt-on", "conditions that a shard must meet before the next one is updated, and that halt the "
           "roll-out of other fleets: Ready, Covered, Detection (a candidate raises the same alarms); empty: wait for "
           "Ready, and never halt",
           default=",".join(DEFAULT_QUESTIONS), metavar="CONDITION,…"),
    Option("--health-port", "port of /healthz and /metrics", default="8080", type=port_number),
)
# fmt: on


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on `parser`; defaults come from EMBEREYE_* variables."""
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--namespace",
        action="append",
        metavar="NAME,…",
        help="watch only these namespaces; repeatable [EMBEREYE_NAMESPACE]",
    )
    scope.add_argument("--all-namespaces", action="store_true", help="watch all namespaces (default)")
    add_options(parser, OPTIONS)


def _positive(option: str, count: int) -> int:
    if count < 1:
        raise UserError(f"{option} {count} is less than 1")
    return count


def _user(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise UserError(f"--shard-user {text} is neither a number above 0 nor none")
    return int(text)


def _questions(text: str) -> tuple[Question, ...]:
    named = split_names([text])
    if unknown := [name for name in named if name not in QUESTIONS]:
        hint = did_you_mean(unknown[0], QUESTIONS)
        raise UserError(f"--rollout-halt-on {unknown[0]} is not one of {', '.join(QUESTIONS)}.{hint}")
    return tuple(question for question in QUESTIONS if question in named)


def _hubs(text: str) -> tuple[NamedHub, ...]:
    with value_errors("--hubs "):
        return parse_hubs(text)


def run(arguments: Namespace) -> int:
    """Run the operator until SIGTERM; return the exit code."""
    lifecycle.configure_logging(os.environ.get("EMBEREYE_LOG_LEVEL", "INFO"))
    named = arguments.namespace or [os.environ.get("EMBEREYE_NAMESPACE", "")]
    settings = options_of(
        Settings,
        arguments,
        hubs=_hubs(arguments.hubs),
        image_pull_secrets=split_names([arguments.image_pull_secrets]),
        user=_user(arguments.shard_user),
        host=arguments.shard_host,
    )
    options = options_of(
        OperatorOptions,
        arguments,
        settings=settings,
        namespaces=() if arguments.all_namespaces else split_names(named),
        hub_names=split_names([arguments.hub_names]),
        rollout_max_fleets=_positive("--rollout-max-fleets", arguments.rollout_max_fleets),
        rollout_halt_on=_questions(arguments.rollout_halt_on),
    )
    return lifecycle.run(lambda stop: serve(options, stop))
