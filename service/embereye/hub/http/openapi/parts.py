"""Parts of descriptions of operations and values.

Each function returns a piece of OpenAPI as plain data. Routes use them in their declarations, and `describe` puts the
pieces into the document as they are.
"""

from collections.abc import Mapping

from embereye.hub.roles import Role

Json = dict[str, object]

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
NOTHING: Json = {"type": "object"}
JPEG = "image/jpeg"
CHANGES = (400, 408, 413, 415)  # refusals of a body


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


def part(name: str, schema: Json) -> Json:
    """Describe a part of the path."""
    return {"name": name, "in": "path", "required": True, "schema": schema}


def answer(description: str, schema: Json | None = None) -> Json:
    """Describe a JSON answer, or one without a relevant body."""
    return {"description": description, "content": {"application/json": {"schema": schema}} if schema else {}}


def file_of(description: str, *media: str) -> Json:
    """Describe an answer that is a file of one of these media types."""
    return {"description": description, "content": {name: {} for name in media}}


def json_body(schema: Json) -> Json:
    """Describe the body of a request."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def fields_of(value: object, *names: str) -> Json:
    """Write the attributes `names` of `value` as fields of an answer: nanoseconds as texts, a role as its word.

    The fields have the attributes' names as JSON writes them: made_ns becomes madeNs.
    """
    fields: Json = {}
    for name in names:
        first, *rest = name.split("_")
        field = getattr(value, name)
        text = field.word if isinstance(field, Role) else str(field) if name.endswith("_ns") else field
        fields["".join([first, *map(str.capitalize, rest)])] = text
    return fields


# Fields and answers of several operations.
SHARE: Json = {"type": "number", "minimum": 0, "maximum": 1}
WHO: Json = {"type": "string", "maxLength": 200}
REASON: Json = {"type": "string", "minLength": 1, "maxLength": 2000, "pattern": "\\S"}
EVENT = {200: answer("the resulting event, durable", reference("AlarmEvent"))}
