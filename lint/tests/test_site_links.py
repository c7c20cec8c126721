"""Links of the documentation that leave docs/."""

import pytest

from lint.site_links import show_paths


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[ARCHITECTURE.md](../../ARCHITECTURE.md)", "`ARCHITECTURE.md`"),
        (
            "[the Go client](../../service/embereye/addons/control/go)",
            "the Go client (`service/embereye/addons/control/go`)",
        ),
        ("[metrics](../reference/metrics.md#labels)", "[metrics](../reference/metrics.md#labels)"),
        ("[feeds](feeds.md)", "[feeds](feeds.md)"),
    ],
)
def test_links_that_leave_docs_are_shown_as_paths(link: str, shown: str) -> None:
    assert show_paths(link, "how-to/control.md") == shown


def test_a_link_to_a_missing_file_fails_with_page_and_target() -> None:
    with pytest.raises(FileNotFoundError, match=r"docs/how-to/control\.md: \.\./\.\./nowhere: no such file"):
        show_paths("[nowhere](../../nowhere)", "how-to/control.md")
