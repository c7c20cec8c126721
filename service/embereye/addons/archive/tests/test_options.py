"""The file of the archive."""

from pathlib import Path

import yaml
from harness.pages import yaml_examples

from embereye.addons.archive.options import parse_archive
from embereye.addons.archive.resource.model import FleetBackupSpec
from embereye_cli.declared import parse_declared
from embereye_operator.api.schema import problems, schema_of, with_defaults

PAGE = Path(__file__).parents[1] / "README.md"


def test_the_examples_of_the_page_are_accepted() -> None:
    (_, bucket), (_, folder), (_, backups), (_, fleet_backup), *_ = yaml_examples(PAGE)
    options = parse_declared(bucket + backups, parse_archive)
    assert (options.bucket, options.backup_seconds, options.keep) == ("fire-evidence", 86_400.0, 14)
    assert parse_declared(folder, parse_archive).folder == Path("/mnt/nas/fire-evidence")
    spec = with_defaults(schema_of(FleetBackupSpec), yaml.safe_load(fleet_backup)["spec"])
    assert problems(FleetBackupSpec, spec) == []
