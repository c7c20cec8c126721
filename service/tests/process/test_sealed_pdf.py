"""A PDF shows a signed file to people, and carries it unchanged."""

import io
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from embereye.process import sealed_pdf
from embereye.process.sealed_pdf import BOLD, FALLBACK, REGULAR, Report, Section, render, signed_file
from embereye.process.signing import InvalidError, open_sealed, public_key, seal

PRIVATE = bytes(range(32))
SIGNED = seal({"zone": "default/仓库-Küche"}, PRIVATE)
REPORT = Report(
    "Walk test of zone default/仓库-Küche",
    [("Site", "Straße 4 <Nord>"), ("Note", "a" * 300)],
    [Section("Devices", ("Device", "Fleet"), [(f"摄像头-{number}", "sensors/all") for number in range(200)])],
    "embereye walktest verify",
    is_signed_by_hand=True,
)


def words(data: bytes) -> str:
    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_pdf, "FONT_FOLDERS", ())
    sealed_pdf._fonts.cache_clear()
    yield
    sealed_pdf._fonts.cache_clear()


def has_fonts() -> bool:
    return all(sealed_pdf._find(name) for name in (REGULAR, BOLD, FALLBACK))


def test_the_signed_file_is_taken_from_the_pdf_unchanged() -> None:
    made = render(REPORT, SIGNED)
    assert signed_file(made) == SIGNED
    assert open_sealed(signed_file(made), [public_key(PRIVATE)]) == {"zone": "default/仓库-Küche"}
    assert signed_file(SIGNED) == SIGNED
    assert render(REPORT, SIGNED) == made


@pytest.mark.skipif(not has_fonts(), reason="install fonts-dejavu-core and fonts-droid-fallback")
def test_chinese_and_german_names_are_text_in_embedded_fonts() -> None:
    made = render(REPORT, SIGNED)
    text = words(made)
    assert "仓库-Küche" in text
    assert "Straße 4 <Nord>" in text
    assert "摄像头-199" in text
    assert public_key(PRIVATE) in text.replace("\n", "")
    assert "written as codes" not in text
    fonts = [each for page in PdfReader(io.BytesIO(made)).pages for each in page["/Resources"]["/Font"].values()]
    assert all("/FontFile2" in each.get_object()["/FontDescriptor"] for each in fonts if "/FontDescriptor" in each)


@pytest.mark.usefixtures("no_fonts")
def test_without_fonts_names_are_codes_and_the_page_says_which_package_is_missing() -> None:
    text = words(render(REPORT, SIGNED)).replace("\n", " ")
    assert "U+4ED3 U+5E93-Küche" in text
    assert "fonts-dejavu-core fonts-droid-fallback is missing" in text


def test_a_pdf_without_the_signed_file_is_refused() -> None:
    printed = PdfWriter()
    printed.append(io.BytesIO(render(REPORT, SIGNED)))
    printed.remove_objects_from_page(printed.pages[0], [])
    written = io.BytesIO()
    bare = PdfWriter()
    bare.add_page(printed.pages[0])
    bare.write(written)
    with pytest.raises(InvalidError, match=r"without one attachment signed\.json"):
        signed_file(written.getvalue())


def test_a_pdf_with_two_signed_files_is_refused() -> None:
    twice = PdfWriter(clone_from=io.BytesIO(render(REPORT, SIGNED)))
    twice.add_attachment("signed.json", SIGNED)
    written = io.BytesIO()
    twice.write(written)
    with pytest.raises(InvalidError, match="without one attachment"):
        signed_file(written.getvalue())


@pytest.mark.parametrize("size", [5, 100, 5_000])
def test_a_pdf_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(InvalidError):
        signed_file(render(REPORT, SIGNED)[:size])


def test_names_choose_the_form() -> None:
    assert sealed_pdf.is_pdf_name(Path("a.PDF"))
    assert not sealed_pdf.is_pdf_name(Path("a.json"))
