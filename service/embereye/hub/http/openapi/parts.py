"""Parts of descriptions of operations and values."""

from collections.abc import Iterable, Mapping

from embereye.hub.http.fleets.lists import Json
from embereye.hub.roles import Role

NANOSECONDS: Json = {
    "type": "string",
    "pattern": "^-?[0-9]+$",
    "description": "nanoseconds since the Unix epoch; 0: never",
}
NUMBER: Json = {"type": ["number", "string"], "description": 'a number, or "NaN", "Infinity", "-Infinity"'}
WORD: Json = {"type": "string"}
ROLE: Json = {"type": "string", "enum": [role.word for role in Role]}
CURSOR: Json = {"type": "string", "pattern": "^[0-9]+$"}
NEXT: Json = {"type": "string", "description": "if there are more: the `after` of the next page"}


def reference(name: str) -> Json:
    """Refer to the schema called `name`."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(required: Mapping[str, Json], **optional: Json) -> Json:
    """Describe an object with these fields."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def list_of(items: Json) -> Json:
    """Describe an array."""
    return {"type": "array", "items": items}


def whole(most: int = 2**63 - 1) -> Json:
    """Describe a whole number from 0 to `most`."""
    return {"type": "integer", "minimum": 0, "maximum": most}


def query(name: str, schema: Json, description: str) -> Json:
    """Describe a parameter of the query."""
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def answer(description: str, schema: Json | None = None) -> Json:
    """Describe a JSON answer, or one without a relevant body."""
    return {"description": description, "content": {"application/json": {"schema": schema}} if schema else {}}


def file_of(description: str, *media: str) -> Json:
    """Describe an answer that is a file of one of these media types."""
    return {"description": description, "content": {name: {} for name in media}}


def operation(
    summary: str,
    answers: Mapping[int, Json],
    *,
    fails: Iterable[int] = (),
    takes: Iterable[Json] = (),
    body: Json | None = None,
) -> Json:
    """Describe one operation without what all have in common; `fails` are its additional refusals."""
    responses: dict[str, Json] = {str(code): content for code, content in answers.items()}
    responses |= {str(code): {"$ref": f"#/components/responses/{code}"} for code in fails}
    described: Json = {"summary": summary, "responses": responses, "parameters": list(takes)}
    if body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return described
