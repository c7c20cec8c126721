"""The releases of Kubernetes that `make test-releases` knows, beside those that the chart and the documents name."""

import re

import yaml
from harness.cluster.chart import CHART
from harness.need import ROOT

RELEASES = re.findall(r"^RELEASES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()


def minor(release: str) -> int:
    return int(release.split(".")[1])


def test_every_minor_version_from_the_oldest_that_the_chart_accepts_is_known() -> None:
    oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=")
    assert [minor(release) for release in RELEASES] == list(range(minor(oldest), minor(RELEASES[-1]) + 1))


def test_the_documents_name_the_oldest_the_newest_and_the_usual_one() -> None:
    usual = re.findall(r"EMBEREYE_KUBERNETES:-(\S+)}", (ROOT / "e2e/cluster/library.bash").read_text())[0]
    assert usual in RELEASES
    page = (ROOT / "docs/reference/versions.md").read_text()
    assert all(release in page for release in (RELEASES[0], usual, RELEASES[-1]))
