from pathlib import Path

import pytest

from embereye.process.lifecycle import UserError
from embereye_operator.up.folder import load_webhooks


def test_webhooks_are_declared_in_yaml_or_json(tmp_path: Path) -> None:
    path = tmp_path / "webhooks.yaml"
    declared = {"webhooks": [{"name": "pager", "url": "https://pager.example/", "select": {"levels": ["alarm"]}}]}
    path.write_text('webhooks:\n- {name: pager, url: "https://pager.example/", select: {levels: [alarm]}}\n')
    assert load_webhooks(path) == declared
    path.write_text(str(declared).replace("'", '"'))
    assert load_webhooks(path) == declared


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("webhooks: [", "not YAML"),
        ("webhooks: []\nwebhooks: []", 'line 2: the key "webhooks" is repeated'),
        ("webhooks: [{name: pager}]", r"webhooks\[0\].url: set either url or urlFile"),
        ("- name: pager", "the file is not an object with named fields"),
    ],
)
def test_a_file_without_webhooks_is_refused_by_name(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "webhooks.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=f"--webhooks {path}.*{sentence}"):
        load_webhooks(path)
    with pytest.raises(UserError, match="No such file"):
        load_webhooks(tmp_path / "none")
