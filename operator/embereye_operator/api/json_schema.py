"""jsonschema without its optional format checkers, which our schemas do not need, and without NaN.

jsonschema imports every installed format checker; the grammar of one (RFC 3987) costs a second of CPU time at each
start, and 16 MB.
"""

import math
import sys
from typing import Any

_CHECKERS = ("fqdn", "idna", "isoduration", "rfc3987", "rfc3987_syntax", "uri_template", "webcolors")
_hidden = dict.fromkeys(name for name in _CHECKERS if name not in sys.modules)
sys.modules.update(_hidden)  # type: ignore[arg-type]  # None makes the import fail

from jsonschema import Draft202012Validator  # noqa: E402
from jsonschema.exceptions import ValidationError  # noqa: E402
from jsonschema.validators import extend  # noqa: E402

for _name in _hidden:
    del sys.modules[_name]


def _is_number(_: Any, value: Any) -> bool:
    """True for finite numbers: JSON and the API server reject YAML's .nan and .inf, and NaN would pass every limit."""
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)


_TYPES = Draft202012Validator.TYPE_CHECKER.redefine("number", _is_number)
Validator = extend(Draft202012Validator, type_checker=_TYPES)  # type: ignore[no-untyped-call]
__all__ = ["ValidationError", "Validator"]
