"""Run in the image: everything that is installed there, as JSON.

{"python": {name: version}, "debian": {name: version}, "distribution": "debian-12"}; without Debian's packages if dpkg's
list is not there.
"""

import json
import platform
from importlib.metadata import distributions
from pathlib import Path

STATUS = Path("/var/lib/dpkg/status")
debian = {}
for paragraph in STATUS.read_text().split("\n\n") if STATUS.is_file() else ():
    fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
    if fields.get("Status", "").endswith(" installed"):
        debian[fields["Package"]] = fields["Version"]
system = platform.freedesktop_os_release()
python = {each.metadata["Name"]: each.version for each in distributions()}
print(
    json.dumps({"python": python, "debian": debian, "distribution": f"{system['ID']}-{system.get('VERSION_ID', '')}"})
)
