"""The files that are generated from the API; run the module to write them."""

from collections.abc import Mapping
from pathlib import Path

from embereye_operator.api import crds, reference

ROOT = Path(__file__).parents[3]  # the checkout: these files are committed


def generated() -> Mapping[Path, str]:
    """Return the content of every file by its path in the checkout."""
    folder = Path("charts/embereye/files/crds")
    pages = {Path("docs/reference/reference.md"): reference.render()}
    return pages | {folder / name: text for name, text in crds.render().items()}


def write(files: Mapping[Path, str]) -> None:
    """Write `files` to their paths in the checkout."""
    for path, text in files.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    write(generated())
