"""Webhooks over gRPC: their state, their dead letters, and a test.

Each call reads `Webhooks` in the hub, or asks it to send something. Deliveries run there, independently of calls. The
hub's errors become gRPC statuses.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.hub import Hub
from embereye.hub.roles import CALLER
from embereye.hub.webhooks.keeper import UnknownWebhookError
from embereye.v1 import webhooks_pb2 as messages
from embereye.v1.webhooks_pb2_grpc import WebhooksServicer

AnyContext = grpc.aio.ServicerContext[Any, Any]


class WebhooksService(WebhooksServicer):
    """Serves the state of webhooks, their dead letters, and tests."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def List(self, request: messages.ListWebhooksRequest, context: AnyContext) -> messages.ListWebhooksResponse:
        """List all webhooks."""
        latest = self._hub.feed.latest
        return messages.ListWebhooksResponse(
            webhooks=[
                messages.Webhook(
                    name=webhook.options.name, format=webhook.options.format, select=webhook.options.selection.message,
                    cursor=webhook.position, behind=latest - webhook.position, dead_letters=webhook.dead,
                    failing=webhook.failing.why, delivered_ns=webhook.delivered_ns,
                )
                for webhook in self._hub.webhooks.all()
            ]
        )  # fmt: skip

    async def DeadLetters(
        self, request: messages.DeadLettersRequest, context: AnyContext
    ) -> messages.DeadLettersResponse:
        """Return a page of a webhook's dead letters."""
        async with _abort_on_error(context):
            letters = await self._hub.webhooks.dead_letters(request.webhook, request.after, request.limit)
        return messages.DeadLettersResponse(
            dead_letters=[
                messages.DeadLetter(
                    event=letter.event, died_ns=letter.died_ns, attempts=letter.attempts, why=letter.why
                )
                for letter in letters
            ]
        )

    async def Resend(self, request: messages.ResendRequest, context: AnyContext) -> messages.ResendResponse:
        """Send dead letters again."""
        async with _abort_on_error(context):
            number = await self._hub.webhooks.resend(CALLER.get(), request.webhook, request.cursors)
        return messages.ResendResponse(resent=number)

    async def Test(self, request: messages.TestWebhookRequest, context: AnyContext) -> messages.TestWebhookResponse:
        """Send a harmless test event by a webhook."""
        async with _abort_on_error(context):
            failed = await self._hub.webhooks.test(CALLER.get(), request.webhook)
        return messages.TestWebhookResponse(failed=failed)


@contextlib.asynccontextmanager
async def _abort_on_error(context: AnyContext) -> AsyncIterator[None]:
    """End the call with the status and the text of an error in the block."""
    try:
        yield
    except UnknownWebhookError as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error.args[0]))
    except (StoreError, StoreFailingError) as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
