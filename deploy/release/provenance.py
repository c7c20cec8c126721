"""Says from which source and how a release was built, as an in-toto statement with SLSA's provenance 1.0."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def builder(environment: Mapping[str, str], home: str) -> str:
    """Name the builder: the run of the workflow, or `make release` on a machine that nobody vouches for."""
    if run := environment.get("GITHUB_RUN_ID"):
        return f"{environment['GITHUB_SERVER_URL']}/{environment['GITHUB_REPOSITORY']}/actions/runs/{run}"
    return f"{home}#make-release"


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_statement(
    files: Iterable[Path], *, home: str, commit: str, version: str, builder: str, started: datetime
) -> dict[str, Any]:
    """Make the statement about `files`, built from `commit` of the repository at `home`."""
    subjects = [{"name": path.name, "digest": {"sha256": digest(path)}} for path in files]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": sorted(subjects, key=lambda subject: str(subject["name"])),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{home}/blob/v{version}/docs/how-to/verify.md#build-it-yourself",
                "externalParameters": {"source": f"git+{home}", "ref": f"refs/tags/v{version}"},
                "resolvedDependencies": [{"uri": f"git+{home}", "digest": {"gitCommit": commit}}],
            },
            "runDetails": {
                "builder": {"id": builder},
                "metadata": {
                    "startedOn": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "finishedOn": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                },
            },
        },
    }
