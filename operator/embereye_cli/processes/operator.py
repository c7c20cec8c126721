"""Run the Kubernetes operator: it watches fleets and runs their shards as declared."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.lifecycle import UserError
from embereye_cli.parser import did_you_mean
from embereye_cli.values import duration_or_seconds, port_number, seconds, size, split_names
from embereye_operator.decide.hubs import NamedHub, parse_hubs
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.ownership.holding import TAKE_OVER
from embereye_operator.decide.rollout.turns import QUESTIONS, Question
from embereye_operator.process import OperatorOptions, serve


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on `parser`; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--namespace",
        action="append",
        metavar="NAME,…",
        help="watch only these namespaces; repeatable [EMBEREYE_NAMESPACE]",
    )
    scope.add_argument("--all-namespaces", action="store_true", help="watch all namespaces (default)")
    parser.add_argument(
        "--watch-nodes",
        action="store_true",
        default=env("WATCH_NODES") == "true",
        help="with --namespace: also move shards off drained or lost nodes (needs list and watch on nodes, and get on "
        "Leases in kube-node-lease) [EMBEREYE_WATCH_NODES=true]",
    )
    parser.add_argument(
        "--fleet-selector",
        default=env("FLEET_SELECTOR"),
        metavar="SELECTOR",
        help="manage only fleets with these labels, for example site=north [EMBEREYE_FLEET_SELECTOR]",
    )
    parser.add_argument(
        "--take-over-after",
        type=seconds,
        default=env("TAKE_OVER_AFTER", f"{TAKE_OVER:g}"),
        metavar="SECONDS",
        help="take over the fleets of another operator if its Lease has not changed for this long "
        "[EMBEREYE_TAKE_OVER_AFTER]",
    )
    parser.add_argument(
        "--hub",
        default=env("HUB", "embereye-hub:50053"),
        help="host:port of the hub's control port, as shards reach it [EMBEREYE_HUB]",
    )
    parser.add_argument(
        "--hubs",
        default=env("HUBS"),
        metavar="JSON",
        help="more hubs, as a list of {name, address, process, namespaces, names}. A hub serves the fleets of its "
        "namespaces, and those that name it in spec.hub. process is its name in its certificate [EMBEREYE_HUBS]",
    )
    parser.add_argument("--image", default=env("IMAGE"), help="image of the shards [EMBEREYE_IMAGE]")
    parser.add_argument(
        "--image-pull-policy",
        default=env("IMAGE_PULL_POLICY"),
        choices=["", "Always", "IfNotPresent", "Never"],
        help="pull policy of the shards; empty: Kubernetes' default [EMBEREYE_IMAGE_PULL_POLICY]",
    )
    parser.add_argument(
        "--image-pull-secrets",
        default=env("IMAGE_PULL_SECRETS"),
        metavar="NAME,…",
        help="Secrets in each fleet's namespace for pulling the shards' image, added to the fleet's "
        "[EMBEREYE_IMAGE_PULL_SECRETS]",
    )
    parser.add_argument(
        "--shard-user",
        default=env("SHARD_USER", str(Settings.user)),
        metavar="ID",
        help="number of the user and group that shards run as; none: the cluster chooses, as OpenShift does; "
        "default: %(default)s [EMBEREYE_SHARD_USER]",
    )
    parser.add_argument(
        "--shard-host",
        default=env("SHARD_HOST"),
        help="address that shards listen on; empty: every address, IPv4 and IPv6 [EMBEREYE_SHARD_HOST]",
    )
    parser.add_argument(
        "--lease",
        default=env("LEASE"),
        metavar="[NAMESPACE/]NAME",
        help="Lease for several operators, of which only its holder acts; empty: there is only one [EMBEREYE_LEASE]",
    )
    parser.add_argument(
        "--release",
        default=env("RELEASE", OperatorOptions.release),
        metavar="NAME",
        help="prefix of two Secrets in the Lease's namespace, created if missing: NAME-ca with the certificate "
        "authority, NAME-hub-identity with the hub's certificate; default: embereye [EMBEREYE_RELEASE]",
    )
    parser.add_argument(
        "--authority-secret",
        default=env("AUTHORITY_SECRET"),
        metavar="NAME",
        help="Secret in the Lease's namespace with a certificate authority, from cert-manager for example; empty: the "
        "operator creates an authority [EMBEREYE_AUTHORITY_SECRET]",
    )
    parser.add_argument(
        "--hub-names",
        default=env("HUB_NAMES"),
        metavar="NAME,…",
        help="names and addresses that people use for the hub, for its certificate [EMBEREYE_HUB_NAMES]",
    )
    parser.add_argument(
        "--role",
        default=env("ROLE"),
        help="the operator's ClusterRole, or Role with --namespace: disruption budgets are deleted with it, and half "
        "an hour after the operator stops; empty: they remain with their fleets [EMBEREYE_ROLE]",
    )
    parser.add_argument(
        "--prometheus",
        default=env("PROMETHEUS", Settings.prometheus),
        help="URL of the Prometheus that KEDA queries for fleets with autoscaling.mode keda [EMBEREYE_PROMETHEUS]",
    )
    parser.add_argument(
        "--scrape-annotations",
        action="store_true",
        default=env("SCRAPE_ANNOTATIONS") == "true",
        help="annotate the shards' Services with prometheus.io/* [EMBEREYE_SCRAPE_ANNOTATIONS=true]",
    )
    parser.add_argument(
        "--scaling-trace",
        type=Path,
        default=Path(env("SCALING_TRACE")) if env("SCALING_TRACE") else None,
        metavar="DIR",
        help="folder to record the inputs of scaling in, for `embereye explain replay` [EMBEREYE_SCALING_TRACE]",
    )
    parser.add_argument(
        "--scaling-trace-size",
        type=size,
        default=env("SCALING_TRACE_SIZE", "1G"),
        metavar="SIZE",
        help="largest size of that folder, for example 500M or 2G; the oldest records are deleted (%(default)s) "
        "[EMBEREYE_SCALING_TRACE_SIZE]",
    )
    parser.add_argument(
        "--rollout-max-fleets",
        type=int,
        default=env("ROLLOUT_MAX_FLEETS", "5"),
        metavar="COUNT",
        help="fleets that roll out a new --image at the same time, after the first one [EMBEREYE_ROLLOUT_MAX_FLEETS]",
    )
    parser.add_argument(
        "--rollout-delay",
        type=duration_or_seconds,
        default=env("ROLLOUT_DELAY", "10s"),
        metavar="DURATION",
        help="pause between the roll-outs of two fleets [EMBEREYE_ROLLOUT_DELAY]",
    )
    parser.add_argument(
        "--rollout-halt-on",
        default=env("ROLLOUT_HALT_ON", ",".join(QUESTIONS)),
        metavar="CONDITION,…",
        help="conditions that a shard must meet before the next one is updated, and that halt the roll-out of other "
        "fleets: Ready, Covered; empty: wait for Ready, and never halt [EMBEREYE_ROLLOUT_HALT_ON]",
    )
    parser.add_argument(
        "--health-port", type=port_number, default=env("HEALTH_PORT", "8080"), help="port of /healthz and /metrics"
    )


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
    try:
        return parse_hubs(text)
    except ValueError as error:
        raise UserError(f"--hubs {error}") from error


def run(arguments: Namespace) -> int:
    """Run the operator until SIGTERM; return the exit code."""
    lifecycle.configure_logging(os.environ.get("EMBEREYE_LOG_LEVEL", "INFO"))
    named = arguments.namespace or [os.environ.get("EMBEREYE_NAMESPACE", "")]
    options = OperatorOptions(
        image=arguments.image,
        hub=arguments.hub,
        hubs=_hubs(arguments.hubs),
        namespaces=() if arguments.all_namespaces else split_names(named),
        authority_secret=arguments.authority_secret,
        watch_nodes=arguments.watch_nodes,
        fleet_selector=arguments.fleet_selector,
        take_over_after=arguments.take_over_after,
        image_pull_policy=arguments.image_pull_policy,
        image_pull_secrets=split_names([arguments.image_pull_secrets]),
        shard_user=_user(arguments.shard_user),
        shard_host=arguments.shard_host,
        lease=arguments.lease,
        release=arguments.release,
        hub_names=split_names([arguments.hub_names]),
        role=arguments.role,
        prometheus=arguments.prometheus,
        scrape_annotations=arguments.scrape_annotations,
        scaling_trace=arguments.scaling_trace,
        scaling_trace_size=arguments.scaling_trace_size,
        rollout_max_fleets=_positive("--rollout-max-fleets", arguments.rollout_max_fleets),
        rollout_delay=arguments.rollout_delay,
        rollout_halt_on=_questions(arguments.rollout_halt_on),
        health_port=arguments.health_port,
    )
    return lifecycle.run(lambda stop: serve(options, stop))
