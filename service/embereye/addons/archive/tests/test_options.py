"""The file of the archive."""

from pathlib import Path

from harness.pages import yaml_examples

from embereye.addons.archive.options import parse_archive
from embereye_cli.declared import parse_declared


def test_the_examples_of_the_page_are_accepted() -> None:
    (_, bucket), (_, backups), *_ = yaml_examples(Path(__file__).parents[1] / "README.md")
    options = parse_declared(bucket + backups, parse_archive)
    assert (options.bucket, options.backup_seconds) == ("fire-evidence", 86_400.0)
