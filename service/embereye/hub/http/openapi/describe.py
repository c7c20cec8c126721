"""Describes everything that the hub serves over HTTP as OpenAPI 3.1, for /v1/openapi.json.

Roles come from the table that is enforced. A test compares the paths with the router's.
"""

import re
from collections.abc import Callable
from importlib.metadata import version

from embereye.hub.http.files import STATIC
from embereye.hub.http.fleets.lists import Json
from embereye.hub.http.openapi.parts import answer, reference
from embereye.hub.http.openapi.paths import paths
from embereye.hub.http.openapi.schemas import schemas
from embereye.hub.plans.keeper import NAME as PLAN_NAME
from embereye.hub.roles import Role

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

# Parts of paths with a certain form, by name; below those that mean something else in some paths.
PARTS: dict[str, Json] = {
    "action": {"type": "string", "enum": ["acknowledge", "reset", "test"]},
    "form": {"type": "string", "enum": ["mkv", "jpg", "mp4", "jsonl"]},
    "kind": {"type": "string", "pattern": "^[0-9][0-9]?$", "description": "1 heat, 2 smoke, 3 gas, 4 flame"},
}
ALARM: Json = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
PARTS_BELOW: dict[tuple[str, str], Json] = {
    ("/v1/plans/", "kind"): {"type": "string", "enum": ["sensors", "cameras"]},
    ("/v1/plans/", "name"): {"type": "string", "pattern": f"^{PLAN_NAME.pattern}$"},
    ("/v1/devices/", "kind"): {"type": "string", "enum": ["sensors", "cameras"]},
    ("/v1/clips/", "name"): {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 of the content"},
    ("/v1/subscriptions/", "name"): {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"},
    ("/v1/alarms/{alarm}/false", "alarm"): ALARM,
    ("/v1/silences/", "silence"): {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    ("/static/", "name"): {"type": "string", "enum": list(STATIC)},
}
NAME: Json = {"type": "string", "minLength": 1}


def describe(role_of: Callable[[str, str], Role | None]) -> Json:
    """Make the document; `role_of(method, path)` returns the needed role, or None for everybody."""
    described = paths()
    for path, operations in described.items():
        for method, operation in operations.items():
            _complete(operation, path, role_of(method.upper(), path))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "EmberEye hub",
            "version": version("embereye"),
            "description": "Alarms, coverage, history and access. Every GET answers HEAD as well, except "
            "/v1/clips/{name}.mjpg. 64-bit numbers are strings, as in protobuf's JSON; a missing field has its "
            "type's zero value.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": described,
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
            "schemas": schemas(),
        },
    }


def _complete(operation: Json, path: str, role: Role | None) -> None:
    """Add what follows from the path and the role."""
    parameters, responses = operation["parameters"], operation["responses"]
    assert isinstance(parameters, list)
    assert isinstance(responses, dict)
    for name in re.findall(r"\{(\w+)\}", path):
        below = (schema for (start, part), schema in PARTS_BELOW.items() if part == name and path.startswith(start))
        schema = ALARM if path == "/v1/alarms/{alarm}" else next(below, PARTS.get(name, NAME))
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    operation["security"] = [{"token": []}, {"session": []}] if role else []
    if role:
        operation["x-embereye-role"] = role.word
    for code in (401, 403, 421, 429) if role else (421,):
        responses.setdefault(str(code), {"$ref": f"#/components/responses/{code}"})
