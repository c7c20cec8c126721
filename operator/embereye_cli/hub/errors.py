"""Sentences for calls to the hub that fail: what went wrong, and what to do about it.

Commands make their calls inside `connected`, which raises the UserError for any failed call; its class determines the
exit code. gRPC reports an unreachable hub in the words of its libraries, so REASONS recognizes them by patterns. An
unknown reason is still shown, last and in brackets.
"""

import asyncio
import contextlib
import re
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import grpc

from embereye.process.lifecycle import NotFoundError, RefusedError, UnreachableError, UserError
from embereye_cli.hub.connection import HubConnection, hub_connection

TOKEN_HINT = (
    "Give a token with --token or EMBEREYE_TOKEN, or name the data folder of your `embereye up` with --data. "
    "An admin makes tokens: `embereye access create`."
)
UNREACHABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
# What gRPC, OpenSSL or the system says (a regular expression) → what is wrong, in plain words, and what to do.
REASONS = {
    "Connection refused": ("connection refused", "Is it running?"),
    "http1.x": ("that is an HTTP port, such as the console's", "gRPC is 50052, unless --hub-port changed it."),
    "WRONG_VERSION_NUMBER": ("it does not use TLS on this port", "Leave --ca out."),
    "CERTIFICATE_VERIFY_FAILED": ("its certificate is not trusted", "Name the authority that signed it with --ca."),
    "Hostname Verification": ("its certificate has another name", "Give a name that it has with --server-name."),
    "Stream removed": ("the connection ended", "Is it still running?"),
    "Socket closed|Connection reset": (
        "it closed the connection",
        "It may use TLS: name the authority that signed its certificate with --ca.",
    ),
    "lookup failed|resol|[Nn]ame or service|No address|getaddrinfo": ("there is no such host", "Check the name."),
    "[Uu]nreachable|No route": ("there is no route to it", "Check the address and the network."),
    "Deadline|[Tt]imed? ?out": ("it does not answer in time", "Is it running, and does a firewall drop packets?"),
}


@contextlib.asynccontextmanager
async def connected(hub: HubConnection, command: str, *, lister: str = "") -> AsyncIterator[grpc.aio.Channel]:
    """Connect to `hub` for the block; calls that fail raise the error of `hub_error`."""
    async with hub.dial() as link:
        try:
            yield link
        except grpc.aio.AioRpcError as error:
            raise hub_error(error, hub.hub, command, lister=lister, presented=bool(hub.token)) from error


def run_action(
    command: str,
    arguments: Namespace,
    perform: Callable[[grpc.aio.Channel, Namespace], Awaitable[None]],
    *,
    lister: str,
) -> int:
    """Run the chosen action of `command`; return the exit code. `lister` names its action that lists what there is."""

    async def run() -> None:
        name, listing = f"embereye {command} {arguments.action}", f"embereye {command} {lister}" if lister else ""
        async with connected(hub_connection(arguments), name, lister=listing) as link:
            await perform(link, arguments)

    asyncio.run(run())
    return 0


def hub_error(
    error: grpc.aio.AioRpcError, hub: str, command: str, *, lister: str = "", presented: bool = True
) -> UserError:
    """The error for a call of `command` to `hub` that failed.

    `lister` is the command that lists what could have been named. `presented`: a token was sent with the call.
    """
    reason = error.details() or error.code().name
    match error.code():
        case code if code in UNREACHABLE:
            return UnreachableError(unreachable(hub, reason))
        case grpc.StatusCode.UNAUTHENTICATED:
            return token_error(hub, reason, presented=presented)
        case grpc.StatusCode.PERMISSION_DENIED:
            role = re.search(r"role (viewer|operator|admin)\b", reason)
            makes = f"embereye access create NAME --role {role[1] if role else 'admin'}"
            return RefusedError(
                f"`{command}` is refused: {reason}. An admin can make a token that is allowed: `{makes}`."
            )
        case grpc.StatusCode.NOT_FOUND:
            return NotFoundError(
                f"{reason}. `{lister}` shows what there is." if lister and lister not in reason else reason
            )
        case grpc.StatusCode.INVALID_ARGUMENT:
            return UserError(reason)
    return RefusedError(reason)


def token_error(hub: str, reason: str, *, presented: bool) -> RefusedError:
    """The error for a call without a valid token; `presented`: a token was sent with it."""
    if presented:
        return RefusedError(f"the hub at {hub} refuses the token: {reason.partition(';')[0]}.", TOKEN_HINT)
    return RefusedError(f"the hub at {hub} needs a token, and none was given.", TOKEN_HINT)


def unreachable(
    address: str,
    reason: str,
    *,
    peer: str = "hub",
    reasons: Mapping[str, tuple[str, str]] = REASONS,
    remedy: str = "Is it running?",
) -> str:
    """The sentence about the `peer` at `address`, which could not be reached for `reason`.

    `reasons` is as `REASONS`; `remedy` is for a reason that is not among them.
    """
    for sign, (plain, known_remedy) in reasons.items():
        if re.search(sign, reason):
            return f"cannot reach the {peer} at {address}: {plain}. {known_remedy}"
    return f"cannot reach the {peer} at {address}. {remedy} ({reason})"
