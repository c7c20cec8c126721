"""The event part of the Alarms service: feeds, stored selections and history.

`Subscribe` and `Follow` open a `Subscription` of the hub's feed and write its entries until the client leaves. An entry
is serialised once for all subscribers, so these two calls write bytes; `add_alarms` removes their serialisers from the
generated code.

`Follow` also reads changes of the selection in a second task. A lock for each call orders events, signs of life and
answers, because gRPC fails simultaneous writes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc

from embereye.hub.feeds.feed import Entry, Subscription, alive_seconds
from embereye.hub.history import EventQuery, history_limit
from embereye.hub.hub import Hub
from embereye.hub.refusals import InvalidError
from embereye.hub.roles import CALLER
from embereye.hub.services.statuses import AnyContext, end_with_status
from embereye.hub.tables.selection import Selection, parse_selection
from embereye.hub.tables.subscriptions import StoredSubscription
from embereye.process.byte_call import adding
from embereye.process.grpc_front import peer_of
from embereye.process.tasks import beside
from embereye.v1 import alarms_pb2 as messages
from embereye.v1.alarms_pb2 import FollowRequest, HistoryRequest, HistoryResponse, SubscribeRequest
from embereye.v1.alarms_pb2_grpc import AlarmsServicer, add_AlarmsServicer_to_server

NO_SERIALISER = {"response_serializer": None}
add_alarms = adding(add_AlarmsServicer_to_server, Subscribe=NO_SERIALISER, Follow=NO_SERIALISER)


@end_with_status
class FeedCalls(AlarmsServicer):
    """The event part of the Alarms service."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    # The stubs expect a generator of messages. With one, the same event would be serialised for every subscriber, and a
    # slow reader could not be ended with a status.
    async def Subscribe(  # type: ignore[override]
        self, request: SubscribeRequest, context: "grpc.aio.ServicerContext[SubscribeRequest, bytes]"
    ) -> None:
        """Send every event past the cursor, then live events."""
        alive, writing = alive_seconds(request.alive_ms), asyncio.Lock()
        async with self._subscribed(request, context) as subscription:
            await context.send_initial_metadata(())  # lets the client know that it is subscribed
            await self._send(context, subscription, writing, alive, lambda entry: entry.binary)

    async def Follow(  # type: ignore[override]
        self, requests: AsyncIterator[FollowRequest], context: "grpc.aio.ServicerContext[FollowRequest, bytes]"
    ) -> None:
        """Send events as `Subscribe` does, with a selection that the client can change."""
        first = await anext(aiter(requests), FollowRequest())
        if first.WhichOneof("body") != "start":
            raise InvalidError("the first message has no start. Set it: it has the cursor and the selection.")
        alive, writing = alive_seconds(first.start.alive_ms), asyncio.Lock()
        async with self._subscribed(first.start, context) as subscription:
            await context.write(_selected(subscription.selection, subscription.position))
            changing = self._change(requests, context, subscription, writing)
            sending = self._send(context, subscription, writing, alive, lambda entry: entry.follow_response)
            async with beside(changing, name="follow-change") as changes, beside(sending, name="follow") as sends:
                await asyncio.wait((changes, sends), return_when=asyncio.FIRST_COMPLETED)
                if changes.done():
                    changes.result()  # raises the problem of a request; a client may also just send no more
                await sends

    async def _send(
        self,
        context: "grpc.aio.ServicerContext[Any, bytes]",
        subscription: Subscription,
        writing: asyncio.Lock,
        alive: float,
        payload: Callable[[Entry], bytes],
    ) -> None:
        """Send events, and an alive message every `alive` seconds unless that is 0; until cancelled.

        gRPC fails one of two simultaneous writes, and the call with it; the lock `writing` prevents that.
        """

        async def write(entry: Entry) -> None:
            async with writing:
                await context.write(payload(entry))

        async def send_alive() -> None:
            while alive:
                async with writing:  # all earlier events are sent by now, so the position is true
                    await context.write(payload(self._hub.sign_of_life(subscription.position)))
                await asyncio.sleep(alive)

        async with beside(send_alive(), name="feed-alive"):
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
            selection = selection.within(CALLER.get().scope)
            async with writing:
                await context.write(_selected(selection, subscription.select(selection)))

    @contextlib.asynccontextmanager
    async def _subscribed(self, request: SubscribeRequest, context: AnyContext) -> AsyncIterator[Subscription]:
        feed = self._hub.feed
        after = feed.latest if request.live_only else request.cursor
        selection = self._selection(request.selection, request.zones, request.subscription)
        with feed.subscribe(after, selection, peer_of(context).host, coalescing=request.coalesce,
                            unstored=request.unstored) as subscription:  # fmt: skip
            yield subscription

    def _selection(self, message: messages.Selection, zones: Iterable[str], name: str = "") -> Selection:
        """Return the selection of a request in the caller's zones. InvalidError, UnknownNameError."""
        return self._read_selection(message, zones, name).within(CALLER.get().scope)

    def _read_selection(self, message: messages.Selection, zones: Iterable[str], name: str) -> Selection:
        asked = messages.Selection(zones=zones)
        asked.MergeFrom(message)
        if not name:
            return parse_selection(asked)
        if asked != messages.Selection():
            raise InvalidError("subscription: it already has a selection. Leave out selection and zones.")
        return self._hub.subscriptions.find(name).selection

    async def ListSubscriptions(
        self, request: messages.ListSubscriptionsRequest, context: AnyContext
    ) -> messages.ListSubscriptionsResponse:
        """List all stored selections."""
        return messages.ListSubscriptionsResponse(subscriptions=map(_stored, self._hub.subscriptions.all()))

    async def StoreSubscription(
        self, request: messages.StoreSubscriptionRequest, context: AnyContext
    ) -> messages.StoredSubscription:
        """Store a selection."""
        selection = parse_selection(request.selection)
        return _stored(await self._hub.subscriptions.store(CALLER.get(), request.name, selection))

    async def RemoveSubscription(
        self, request: messages.RemoveSubscriptionRequest, context: AnyContext
    ) -> messages.RemoveSubscriptionResponse:
        """Remove a selection."""
        await self._hub.subscriptions.remove(CALLER.get(), request.name)
        return messages.RemoveSubscriptionResponse()

    async def History(self, request: HistoryRequest, context: AnyContext) -> HistoryResponse:
        """Return a page of events."""
        latest = self._hub.feed.latest
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
