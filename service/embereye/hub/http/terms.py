"""A detector's value beside its limit, in answers."""

from embereye.hub.http.openapi.parts import WORD, Json, record
from embereye.margins import Measured

REAL: Json = {"type": "number"}
TERM = record({"name": WORD, "value": REAL, "threshold": REAL, "unit": WORD})


def term_of(term: Measured) -> Json:
    """The answer's object for `term`."""
    name, value, limit, unit = term
    return {"name": name, "value": value, "threshold": limit, "unit": unit}
