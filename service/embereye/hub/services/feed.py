"""What of the Alarms service is about events: the feeds, selections that are stored, and history."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, cast

import grpc

from embereye.hub.access.roles import CALLER
from embereye.hub.databases.interface import StoreError
from embereye.hub.feeds.feed import (
    ClosedError,
    Entry,
    FutureCursorError,
    Subscription,
    TooManyError,
    TooSlowError,
    alive_seconds,
)
from embereye.hub.feeds.records import StoredSubscription
from embereye.hub.feeds.selection import Selection, parse_selection
from embereye.hub.feeds.subscriptions import UnknownSubscriptionError
from embereye.hub.hub import Hub
from embereye.hub.storage.committer import StoreFailingError
from embereye.hub.storage.history import EventQuery, history_limit
from embereye.process.addresses import peer_host
from embereye.process.tasks import beside
from embereye.v1 import alarms_pb2 as messages
from embereye.v1.alarms_pb2 import FollowRequest, HistoryRequest, HistoryResponse, SubscribeRequest
from embereye.v1.alarms_pb2_grpc import AlarmsServicer, add_AlarmsServicer_to_server

AnyContext = grpc.aio.ServicerContext[Any, Any]
SERIALISED = ("Subscribe", "Follow")  # calls whose responses are bytes already
STATUSES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (FutureCursorError, grpc.StatusCode.OUT_OF_RANGE),
    (UnknownSubscriptionError, grpc.StatusCode.NOT_FOUND),
    (ValueError, grpc.StatusCode.INVALID_ARGUMENT),
    (TooSlowError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (TooManyError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (StoreError, grpc.StatusCode.UNAVAILABLE),
    (StoreFailingError, grpc.StatusCode.UNAVAILABLE),
    (ClosedError, grpc.StatusCode.UNAVAILABLE),
)


def add_alarms(servicer: AlarmsServicer, server: Any) -> None:
    """`add_AlarmsServicer_to_server` for a servicer whose feeds write what was serialised once for all."""
    add_AlarmsServicer_to_server(servicer, cast("grpc.aio.Server", _Adding(server)))


class _Adding:
    """Stands for a server where generated code adds a servicer to it."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """As the server."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """As the server, with handlers that do not serialise what is serialised."""
        changed = {name: handlers[name]._replace(response_serializer=None) for name in SERIALISED}
        self._server.add_registered_method_handlers(service, {**handlers, **changed})


class FeedCalls(AlarmsServicer):
    """The part of the Alarms service that is about events."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    # The stubs ask for a generator of messages: a slow reader could not be told so, and every subscriber would have the
    # same event serialised once more.
    async def Subscribe(  # type: ignore[override]
        self, request: SubscribeRequest, context: "grpc.aio.ServicerContext[SubscribeRequest, bytes]"
    ) -> None:
        """Send every event past the cursor, then live."""
        async with _told(context):
            alive, writing = alive_seconds(request.alive_ms), asyncio.Lock()
            async with self._subscribed(request, context) as subscription:
                await self._send(context, subscription, writing, alive, lambda entry: entry.binary)

    async def Follow(  # type: ignore[override]
        self, requests: AsyncIterator[FollowRequest], context: "grpc.aio.ServicerContext[FollowRequest, bytes]"
    ) -> None:
        """The same, with a selection that may be changed."""
        async with _told(context):
            first = await anext(aiter(requests), FollowRequest())
            if first.WhichOneof("body") != "start":
                raise ValueError("the first message has no start: it says where to begin, and what is wanted")
            alive, writing = alive_seconds(first.start.alive_ms), asyncio.Lock()
            async with self._subscribed(first.start, context) as subscription:
                await context.write(_selected(subscription.selection, subscription.position))
                changing = self._change(requests, context, subscription, writing)
                sending = self._send(context, subscription, writing, alive, lambda entry: entry.follow_response)
                async with beside(changing, name="follow-change") as changes, beside(sending, name="follow") as sends:
                    await asyncio.wait((changes, sends), return_when=asyncio.FIRST_COMPLETED)
                    if changes.done():
                        changes.result()  # raises what was wrong with a request; a client may also have no more of them
                    await sends

    async def _send(
        self,
        context: "grpc.aio.ServicerContext[Any, bytes]",
        subscription: Subscription,
        writing: asyncio.Lock,
        alive: float,
        payload: Callable[[Entry], bytes],
    ) -> None:
        """What happens, and every `alive` seconds, where that is not 0, that the hub is there; for ever.

        Of two writes at once gRPC fails one, and the call with it: there is one while `writing` is held.
        """

        async def write(entry: Entry) -> None:
            async with writing:
                await context.write(payload(entry))

        async def say_so() -> None:
            while alive:
                async with writing:  # what waited before is told by now, and counts
                    await context.write(payload(self._hub.sign_of_life(subscription.position)))
                await asyncio.sleep(alive)

        async with beside(say_so(), name="feed-alive"):
            while True:
                await subscription.deliver(write)

    async def _change(
        self,
        requests: AsyncIterator[FollowRequest],
        context: "grpc.aio.ServicerContext[FollowRequest, bytes]",
        subscription: Subscription,
        writing: asyncio.Lock,
    ) -> None:
        async for request in requests:
            if request.WhichOneof("body") == "subscription":
                selection = self._hub.subscriptions.find(request.subscription).selection
            else:
                selection = parse_selection(request.selection)
            async with writing:
                await context.write(_selected(selection, subscription.select(selection)))

    @contextlib.asynccontextmanager
    async def _subscribed(self, request: SubscribeRequest, context: AnyContext) -> AsyncIterator[Subscription]:
        feed = self._hub.feed
        after = feed.latest if request.live_only else request.cursor
        selection = self._selection(request.selection, request.zones, request.subscription)
        with feed.subscribe(after, selection, peer_host(context.peer()), coalescing=request.coalesce,
                            unstored=request.unstored) as subscription:  # fmt: skip
            await context.send_initial_metadata(())  # tells the client that it is subscribed
            yield subscription

    def _selection(self, message: messages.Selection, zones: Iterable[str], name: str = "") -> Selection:
        """What a request wants. ValueError, UnknownSubscriptionError."""
        asked = messages.Selection(zones=zones)
        asked.MergeFrom(message)
        if not name:
            return parse_selection(asked)
        if asked != messages.Selection():
            raise ValueError("subscription: it says what is wanted already; leave out selection and zones")
        return self._hub.subscriptions.find(name).selection

    async def ListSubscriptions(
        self, request: messages.ListSubscriptionsRequest, context: AnyContext
    ) -> messages.ListSubscriptionsResponse:
        """All selections that are stored."""
        return messages.ListSubscriptionsResponse(subscriptions=map(_stored, self._hub.subscriptions.all()))

    async def StoreSubscription(
        self, request: messages.StoreSubscriptionRequest, context: AnyContext
    ) -> messages.StoredSubscription:
        """Store one."""
        async with _told(context):
            selection = parse_selection(request.selection)
            stored = await self._hub.subscriptions.store(CALLER.get(), request.name, selection)
        return _stored(stored)

    async def RemoveSubscription(
        self, request: messages.RemoveSubscriptionRequest, context: AnyContext
    ) -> messages.RemoveSubscriptionResponse:
        """Forget one."""
        async with _told(context):
            await self._hub.subscriptions.remove(CALLER.get(), request.name)
        return messages.RemoveSubscriptionResponse()

    async def History(self, request: HistoryRequest, context: AnyContext) -> HistoryResponse:
        """A page of events."""
        latest = self._hub.feed.latest
        async with _told(context):
            selection = self._selection(request.selection, [request.zone] if request.zone else [])
            page = await self._hub.history.search(
                EventQuery(
                    selection, request.after, request.before, request.since_ns, request.until_ns, request.newest,
                    history_limit(request.limit),
                )
            )  # fmt: skip
        return HistoryResponse(events=page.events, latest=latest, next=page.next)


def _selected(selection: Selection, cursor: int) -> bytes:
    selected = messages.Selected(selection=selection.message, cursor=cursor)
    return messages.FollowResponse(selected=selected).SerializeToString()


def _stored(stored: StoredSubscription) -> messages.StoredSubscription:
    return messages.StoredSubscription(
        name=stored.name, selection=stored.selection.message, made_ns=stored.made_ns, made_by=stored.made_by
    )


@contextlib.asynccontextmanager
async def _told(context: AnyContext) -> AsyncIterator[None]:
    """End the call with a status that says why it cannot be answered, or goes on no more."""
    try:
        yield
    except tuple(kind for kind, _ in STATUSES) as error:
        code = next(code for kind, code in STATUSES if isinstance(error, kind))
        await context.abort(code, str(error))
