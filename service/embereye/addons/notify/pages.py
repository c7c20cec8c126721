"""The pages behind the links in messages (pure). They need no script and work in any browser."""

import html
from collections.abc import Sequence

from embereye.addons.notify.incidents import OPEN, Incident
from embereye.addons.notify.links import CONFIRM, Link

# Only a form to the hub itself; no script, no picture, no frame.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
STYLE = """
body{font:1.1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:34rem;padding:0 1rem;background:#14161a}
body{color:#f2f2f2}li{margin:.4rem 0}
button{font:inherit;font-weight:700;padding:.8rem 1.4rem;border:0;border-radius:.4rem;width:100%}
button{background:#ff6a3d;color:#14161a}
input{font:inherit;padding:.6rem;width:100%;box-sizing:border-box;margin:.3rem 0 1rem}
"""


def ask(link: Link, incidents: Sequence[Incident]) -> str:
    """The page that asks for the tap. Opening it changes nothing."""
    if link.purpose == CONFIRM:
        return _page("Did you receive the test?", [f"This confirms that the route {link.route} reaches you."], "I did")
    if not any(incident.state == OPEN for incident in incidents):
        return _page("Nothing to acknowledge", _states(incidents) or ["The alarms of this message are over."])
    title = "Acknowledge this alarm?" if len(incidents) == 1 else f"Acknowledge {len(incidents)} alarms?"
    return _page(title, _states(incidents), "Acknowledge")


def done(sentences: Sequence[str]) -> str:
    """The page after the tap."""
    return _page("Done", sentences or ["The alarms of this message are over."])


def refuse(sentence: str) -> str:
    """The page for a link that does not work."""
    return _page("This link does not work", [sentence])


def _states(incidents: Sequence[Incident]) -> list[str]:
    return [
        f"{incident.title}: {incident.why}" if incident.state == OPEN
        else f"{incident.title}: {incident.state}{f' by {incident.who}' if incident.who else ''}"
        for incident in incidents
    ]  # fmt: skip


def _page(title: str, sentences: Sequence[str], button: str = "") -> str:
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    form = (
        '<form method="post"><label>Your name <input name="who" maxlength="100" autocomplete="name"></label>'
        f"<button>{html.escape(button)}</button></form>"
        if button
        else ""
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>EmberEye</title><style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1><ul>{items}</ul>{form}"
        "</body></html>"
    )
