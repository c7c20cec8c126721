"""jsonschema without what it loads for formats, which our schemas have it check none of.

It takes up every checker of a format that happens to be installed; the grammar of one (RFC 3987) costs a second of
processor time at each start, and 16 MB.
"""

import sys

_CHECKERS = ("fqdn", "idna", "isoduration", "rfc3987", "rfc3987_syntax", "uri_template", "webcolors")
_hidden = dict.fromkeys(name for name in _CHECKERS if name not in sys.modules)
sys.modules.update(_hidden)  # type: ignore[arg-type]  # None says that there is none

from jsonschema import Draft202012Validator as Validator  # noqa: E402
from jsonschema.exceptions import ValidationError  # noqa: E402

for _name in _hidden:
    del sys.modules[_name]

__all__ = ["ValidationError", "Validator"]
