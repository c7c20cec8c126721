"""Run in the image: every Python package that is installed there, name → version, as JSON."""

import json
from importlib.metadata import distributions

print(json.dumps({each.metadata["Name"]: each.version for each in distributions()}))
