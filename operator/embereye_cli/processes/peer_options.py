"""The environment variables of options."""

import os


def env(name: str, default: str = "") -> str:
    """The environment variable EMBEREYE_`name`."""
    return os.environ.get(f"EMBEREYE_{name}", default)
