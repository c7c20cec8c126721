"""kubectl's flags, for commands that query a cluster."""

import argparse

from embereye_operator.runtime.kubernetes.client.client import Target
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare kubectl's flags on `parser`. A flag that is not given leaves no attribute: see `target_of`."""
    for name, metavar, text in (
        ("--context", "NAME", "the kubeconfig's context; default: its current one"),
        ("--kubeconfig", "FILE", "default: $KUBECONFIG, then ~/.kube/config"),
    ):
        parser.add_argument(name, default=argparse.SUPPRESS, metavar=metavar, help=text)
    parser.add_argument("-n", "--namespace", default=argparse.SUPPRESS, help="default: the context's")


def target_of(arguments: argparse.Namespace) -> Target:
    """The cluster and namespace that the flags of `add_target_arguments` name."""
    namespace = ALL_NAMESPACES if getattr(arguments, "all_namespaces", False) else getattr(arguments, "namespace", "")
    return Target(namespace, getattr(arguments, "context", ""), getattr(arguments, "kubeconfig", ""))
