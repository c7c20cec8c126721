"""jsonschema without what it loads for formats, which our schemas have it check none of, and without NaN.

It takes up every checker of a format that happens to be installed; the grammar of one (RFC 3987) costs a second of
processor time at each start, and 16 MB.
"""

import math
import sys
from typing import Any

_CHECKERS = ("fqdn", "idna", "isoduration", "rfc3987", "rfc3987_syntax", "uri_template", "webcolors")
_hidden = dict.fromkeys(name for name in _CHECKERS if name not in sys.modules)
sys.modules.update(_hidden)  # type: ignore[arg-type]  # None says that there is none

from jsonschema import Draft202012Validator  # noqa: E402
from jsonschema.exceptions import ValidationError  # noqa: E402
from jsonschema.validators import extend  # noqa: E402

for _name in _hidden:
    del sys.modules[_name]


def _is_number(_: Any, value: Any) -> bool:
    """YAML knows .nan and .inf, JSON and the API server do not; NaN is within all limits."""
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)


_TYPES = Draft202012Validator.TYPE_CHECKER.redefine("number", _is_number)
Validator = extend(Draft202012Validator, type_checker=_TYPES)  # type: ignore[no-untyped-call]
__all__ = ["ValidationError", "Validator"]
