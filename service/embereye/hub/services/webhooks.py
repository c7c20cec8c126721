"""Webhooks over gRPC."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from embereye.hub.access.roles import CALLER
from embereye.hub.databases.interface import StoreError
from embereye.hub.hub import Hub
from embereye.hub.storage.committer import StoreFailingError
from embereye.hub.webhooks.keeper import UnknownWebhookError
from embereye.v1 import webhooks_pb2 as messages
from embereye.v1.webhooks_pb2_grpc import WebhooksServicer

AnyContext = grpc.aio.ServicerContext[Any, Any]


class WebhooksService(WebhooksServicer):
    """How webhooks fare, their dead letters, and a test."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def List(self, request: messages.ListWebhooksRequest, context: AnyContext) -> messages.ListWebhooksResponse:
        """All webhooks."""
        latest = self._hub.feed.latest
        return messages.ListWebhooksResponse(
            webhooks=[
                messages.Webhook(
                    name=one.options.name, format=one.options.format, select=one.options.selection.message,
                    cursor=one.position, behind=latest - one.position, dead_letters=one.dead, failing=one.failing,
                    delivered_ns=one.delivered_ns,
                )
                for one in self._hub.webhooks.all()
            ]
        )  # fmt: skip

    async def DeadLetters(
        self, request: messages.DeadLettersRequest, context: AnyContext
    ) -> messages.DeadLettersResponse:
        """A page of what a webhook could not deliver."""
        async with _told(context):
            letters = await self._hub.webhooks.dead_letters(request.webhook, request.after, request.limit)
        return messages.DeadLettersResponse(
            dead_letters=[
                messages.DeadLetter(event=one.event, died_ns=one.died_ns, attempts=one.attempts, why=one.why)
                for one in letters
            ]
        )

    async def Resend(self, request: messages.ResendRequest, context: AnyContext) -> messages.ResendResponse:
        """Send dead letters again."""
        async with _told(context):
            number = await self._hub.webhooks.resend(CALLER.get(), request.webhook, request.cursors)
        return messages.ResendResponse(resent=number)

    async def Test(self, request: messages.TestWebhookRequest, context: AnyContext) -> messages.TestWebhookResponse:
        """Send a webhook something that nobody need mind."""
        async with _told(context):
            failed = await self._hub.webhooks.test(CALLER.get(), request.webhook)
        return messages.TestWebhookResponse(failed=failed)


@contextlib.asynccontextmanager
async def _told(context: AnyContext) -> AsyncIterator[None]:
    """End the call with a status that says why it cannot be answered."""
    try:
        yield
    except UnknownWebhookError as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error.args[0]))
    except (StoreError, StoreFailingError) as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
