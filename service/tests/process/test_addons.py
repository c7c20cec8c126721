"""Finding the modules of add-ons."""

from pathlib import Path

from embereye import addons
from embereye.process.addons import addon_modules


def test_the_empty_folder_of_a_deleted_module_is_no_module(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "left_over"
    (folder / "commands/__pycache__").mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.setattr(addons, "__path__", [*addons.__path__, str(tmp_path)])
    names = [module.__name__ for module in addon_modules("commands")]
    assert names
    assert "embereye.addons.left_over.commands" not in names
