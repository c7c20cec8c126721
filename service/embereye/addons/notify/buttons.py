"""Buttons in messages: what a service needs to show a link as a button (pure).

Apprise has no buttons. They are added to the request that it sends: to ntfy as actions, to Telegram as an inline
keyboard, to Slack as a button of the attachment. Each opens the link's page; ntfy's first one acknowledges at once. All
services have the link in the text too.
"""

import json
from collections.abc import MutableMapping
from typing import Any

from embereye.addons.notify.messages import Message

NTFY, TELEGRAM, SLACK = ("ntfy", "ntfys"), ("tgram",), ("slack",)
TELEGRAM_CALLS = ("/sendMessage", "/sendPhoto", "/sendDocument")  # its other calls take no keyboard


def has_buttons(scheme: str) -> bool:
    """True if messages to addresses with this scheme of Apprise get buttons."""
    return scheme in {*NTFY, *TELEGRAM, *SLACK}


def add_buttons(scheme: str, message: Message, url: str, options: MutableMapping[str, Any]) -> None:
    """Add the link of `message` as buttons to the `options` of a call of requests to `url`."""
    if not message.link:
        return
    if scheme in NTFY:
        _add_actions(message, options)
    elif scheme in TELEGRAM and url.endswith(TELEGRAM_CALLS):
        _add_keyboard(message, options)
    elif scheme in SLACK:
        _add_button(message, options)


def _add_actions(message: Message, options: MutableMapping[str, Any]) -> None:
    """Add ntfy's actions (https://docs.ntfy.sh/publish/#action-buttons), unless the address has others."""
    headers = options.get("headers") or {}
    if "X-Actions" in headers:
        return
    actions = [
        {"action": "http", "label": message.verb, "url": message.link, "method": "POST", "clear": True},
        {"action": "view", "label": "Open", "url": message.link},
    ]
    options["headers"] = {**headers, "X-Actions": json.dumps(actions)}


def _add_keyboard(message: Message, options: MutableMapping[str, Any]) -> None:
    """Add an inline keyboard (https://core.telegram.org/bots/api#inlinekeyboardmarkup)."""
    keyboard = {"inline_keyboard": [[{"text": message.verb, "url": message.link}]]}
    data = options.get("data")
    if isinstance(data, str):
        options["data"] = json.dumps({**json.loads(data), "reply_markup": keyboard})
    elif isinstance(data, dict):  # the fields beside a picture
        options["data"] = {**data, "reply_markup": json.dumps(keyboard)}


def _add_button(message: Message, options: MutableMapping[str, Any]) -> None:
    """Add a link button to the first attachment, which needs no answer from us, unlike Slack's blocks."""
    data = options.get("data")
    document = json.loads(data) if isinstance(data, str) and data.startswith("{") else {}
    if attachments := document.get("attachments"):
        button = {"type": "button", "text": message.verb, "url": message.link, "style": "primary"}
        attachments[0].update(fallback=message.text, actions=[button])
        options["data"] = json.dumps(document)
