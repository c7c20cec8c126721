"""Links of the documentation that leave docs/."""

import pytest

from lint.site_links import LIST, show_paths


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[ARCHITECTURE.md](../../ARCHITECTURE.md)", "`ARCHITECTURE.md`"),
        ("[the chart](../../charts/embereye)", "the chart (`charts/embereye`)"),
        ("[metrics](../reference/metrics.md#labels)", "[metrics](../reference/metrics.md#labels)"),
        ("[feeds](feeds.md)", "[feeds](feeds.md)"),
    ],
)
def test_links_that_leave_docs_are_shown_as_paths(link: str, shown: str) -> None:
    assert show_paths(link, "how-to/cameras.md") == shown


def test_links_from_and_to_pages_of_add_ons_lead_to_their_place_on_the_site() -> None:
    shown = show_paths("[add-ons](../../service/embereye/addons/README.md)", "how-to/index.md")
    assert shown == "[add-ons](add-ons.md)"
    shown = show_paths("[cameras](../../../docs/how-to/cameras.md#by-maker), [hub](../hub)", LIST)
    assert shown == "[cameras](cameras.md#by-maker), `service/embereye/hub`"


def test_a_link_to_a_missing_file_fails_with_page_and_target() -> None:
    with pytest.raises(FileNotFoundError, match=r"docs/how-to/cameras\.md: \.\./\.\./nowhere: no such file"):
        show_paths("[nowhere](../../nowhere)", "how-to/cameras.md")
