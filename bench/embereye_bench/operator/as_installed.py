"""Import this first in a process whose memory is to be that of an installed operator.

Development tools bring along what jsonschema loads wherever it finds it. The grammar of one of them takes 16 MB.
"""

import sys

for _name in ("rfc3987_syntax", "isoduration", "webcolors", "fqdn", "uri_template"):
    sys.modules[_name] = None  # type: ignore[assignment]  # "there is none", to whoever tries
