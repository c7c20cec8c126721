"""Webhooks over gRPC: their state, their dead letters, and a test.

Each call reads `Webhooks` in the hub, or asks it to send something. Deliveries run there, independently of calls.
"""

from embereye.hub.hub import Hub
from embereye.hub.roles import CALLER
from embereye.hub.services.statuses import AnyContext, end_with_status
from embereye.v1 import webhooks_pb2 as messages
from embereye.v1.webhooks_pb2_grpc import WebhooksServicer


@end_with_status
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
        number = await self._hub.webhooks.resend(CALLER.get(), request.webhook, request.cursors)
        return messages.ResendResponse(resent=number)

    async def Test(self, request: messages.TestWebhookRequest, context: AnyContext) -> messages.TestWebhookResponse:
        """Send a harmless test event by a webhook."""
        failed = await self._hub.webhooks.test(CALLER.get(), request.webhook)
        return messages.TestWebhookResponse(failed=failed)
