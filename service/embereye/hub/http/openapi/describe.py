"""Describes everything that the hub serves over HTTP as OpenAPI 3.1, for /v1/openapi.json.

The document is made from the declarations of the routes (`Route`), which also make the router, so both always agree.
`Api` calls `describe` for each request. Refusals that follow from a route's role are added here; a route declares only
its others.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version

from embereye.hub.http.openapi.parts import Json, answer, part, reference
from embereye.hub.http.openapi.schemas import schemas
from embereye.hub.http.route import PART, Route

REASONS = {
    400: "The request is malformed; `error` says how.",
    401: "The caller has not proved who they are.",
    403: "The role does not allow it, or the request comes from a page of another site.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "The present state does not allow it.",
    413: "The body is larger than 1 MB, the image than 16 MiB, or the clip than can be shown.",
    415: "The body is not application/json, or not an image that can be a plan.",
    421: "The Host header is not a name of this hub.",
    426: "This is a WebSocket.",
    429: "Too many failed attempts from this address, or too many sign-ins of one person. Retry-After has the wait.",
    503: "Try again later: the database cannot be written or read, or there are too many requests at once.",
}
NAME: Json = {"type": "string", "minLength": 1}
WORDS = re.compile(r"\w+(\|\w+)+")  # a regular expression that lists words


def describe(routes: Iterable[Route], more: Mapping[str, Json], base_path: str = "") -> Json:
    """Make the document of `routes` below `base_path`; `more` are schemas that they refer to."""
    paths, without_head = dict[str, Json](), list[str]()
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
        if route.method == "GET" and not route.head:
            without_head.append(route.template)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "EmberEye hub",
            "version": version("embereye"),
            "description": "Alarms, coverage, history and access. Every GET answers HEAD as well, except "
            f"{', '.join(without_head)}. 64-bit numbers are strings, as in protobuf's JSON; a missing field has its "
            "type's zero value.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_path or "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`embereye access create` creates tokens"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "embereye",
                    "description": "of a signed-in browser; its name ends with the hub's port",
                },
            },
            "responses": {str(code): answer(sentence, reference("Error")) for code, sentence in REASONS.items()},
            "schemas": {**schemas(), **more},
        },
    }


def _operation(route: Route) -> Json:
    known = {str(taken["name"]): taken for taken in route.takes if taken["in"] == "path"}
    in_path = [known.get(name) or part(name, _schema(pattern)) for name, pattern in PART.findall(route.path)]
    refusals = {*route.fails, *((401, 403, 421, 429) if route.role else (421,))}
    responses = {str(code): {"$ref": f"#/components/responses/{code}"} for code in sorted(refusals)}
    described: Json = {
        "summary": route.summary,
        "parameters": [*(taken for taken in route.takes if taken["in"] == "query"), *in_path],
        "responses": responses | {str(code): content for code, content in route.answers.items()},
        "security": [{"token": []}, {"session": []}] if route.role else [],
    }
    if route.role:
        described["x-embereye-role"] = route.role.word
    if route.body is not None:
        described["requestBody"] = route.body
    return described


def _schema(pattern: str) -> Json:
    """Describe a part of a path that has to match `pattern`; empty: it can be any name."""
    if WORDS.fullmatch(pattern):
        return {"type": "string", "enum": pattern.split("|")}
    return {"type": "string", "pattern": f"^{pattern}$"} if pattern else NAME
