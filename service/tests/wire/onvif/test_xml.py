import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye.wire.onvif import xml
from embereye.wire.onvif.xml import XmlError, parse

LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><l>&c;</l>"""


def test_elements_are_found_in_any_namespace_and_at_any_depth():
    root = parse(
        b'<s:E xmlns:s="x"><s:B><a token="1"><b> one </b></a><c><a token="2"><b>two &amp; t</b></a></c></s:B></s:E>'
    )
    assert [element.attributes["token"] for element in root.all("a")] == ["1", "2"]
    assert root.value("c", "a", "b") == "two & t"
    assert root.value("B", "b") == "one"
    assert root.first("B", "nothing") is None
    assert root.value("nothing", "b") == ""


def test_an_undeclared_prefix_is_accepted():
    assert parse(b"<tt:Uri>rtsp://c/1</tt:Uri>").name == "Uri"


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        b'<!DOCTYPE l [<!ENTITY f SYSTEM "file:///etc/passwd">]><l>&f;</l>',
        b'<!DOCTYPE l SYSTEM "http://127.0.0.1:1/l.dtd"><l/>',
        b"<!DOCTYPE l [<!ENTITY % p SYSTEM 'file:///etc/passwd'> %p;]><l/>",
    ],
)
def test_a_document_type_is_refused_so_that_no_entity_expands(text):
    with pytest.raises(XmlError, match="document type"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"<a><b>rtsp://c/1?x=1&y=2&z=a;b</b></a>", "rtsp://c/1?x=1&y=2&z=a;b"),
        (b"<a><b>x?a=1&amp;b=2&c=3</b></a>", "x?a=1&b=2&c=3"),
        (b"<a><b>& &</b></a>", "& &"),
        (b"<a><b>Ga\x01te\x1f</b></a>", "Gate"),
        (b"<a><b>G&#x1;a&#00;te&#31;&#X0B;</b></a>", "Gate"),
        (b"<a><b>a&#9;b&#65;</b></a>", "a\tbA"),
        (b"<a><b>Gate</b></a>\0\0\0", "Gate"),
        (b"<a><b>Ga\0te</b></a>", "Gate"),
        (b"<a><b>Gate</b></a>\r\n</html>", "Gate"),
        (b"<a><b>Gate</b></a><a/>", "Gate"),
        (b"<a><b>Gate&</b></a> & done \x01 <", "Gate&"),
        (b"\r\n <?xml version='1.0'?><a><b>Gate</b></a>", "Gate"),
        (b"\0<a><b>Gate</b></a>", "Gate"),
        (b"<a><b>Gate&nbsp;1</b></a>", "Gate&nbsp;1"),
        (b"<a><b>Gate\xff</b></a>", "Gate\ufffd"),
        (b'<?xml version="1.0" encoding="nonsense"?><a><b>Gate</b></a>', "Gate"),
        (b'<?xml version="1.0" encoding="utf-7"?><a><b>Gate</b></a>', "Gate"),
        (b'<?xml version="1.0" encoding="idna"?><a><b>Gate</b></a>', "Gate"),
        (b'<?xml version="1.0" encoding="UTF-16"?><a><b>Gate</b></a>', "Gate"),
        ('<?xml version="1.0" encoding="GB2312"?><a><b>\u5927\u95e8</b></a>'.encode("gb2312"), "\u5927\u95e8"),
        ('<?xml version="1.0" encoding="gbk"?><a><b>\u5927\u95e8&1</b></a>'.encode("gbk"), "\u5927\u95e8&1"),
        ('<?xml version="1.0" encoding="UTF-16"?><a><b>Gate&1</b></a>'.encode("utf-16"), "Gate&1"),
    ],
)
def test_bytes_that_cameras_wrongly_write_are_repaired(text, value):
    assert parse(text).value("b") == value


@pytest.mark.parametrize(
    "text", [b"\0<!DOCTYPE l [<!ENTITY f 'x'>]><l>&f; & \x01</l>", b"<!DOC\0TYPE l [<!ENTITY f 'x'>]><l>&f;</l>"]
)
def test_a_repair_brings_no_document_type_back(text):
    with pytest.raises(XmlError):
        parse(text)


def test_a_name_in_another_encoding_does_not_spoil_the_rest():
    root = parse("<a><b>Tür</b><c>x?a=1&b=2</c></a>".encode("latin-1"))
    assert (root.value("b"), root.value("c")) == ("T\ufffdr", "x?a=1&b=2")


@pytest.mark.parametrize(
    "text",
    [b"", b"<a>", b"<html><br></html>", b"no", b'<?xml version="1.0" encoding="utf-7"?>+ADw-a/+AD4-'],
)  # fmt: skip
def test_text_other_than_xml_is_refused(text):
    with pytest.raises(XmlError, match="not XML"):
        parse(text)


def test_the_depth_and_number_of_elements_are_limited():
    deep = b"<a>" * (xml.MAX_DEPTH + 1) + b"</a>" * (xml.MAX_DEPTH + 1)
    many = b"<a>" + b"<b/>" * xml.MAX_ELEMENTS + b"</a>"
    for text in (deep, many):
        with pytest.raises(XmlError, match="more than"):
            parse(text)
    parse(deep[3:-4])


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(data):
    for text in (data, b"<a>" + data + b"</a>"):
        with contextlib.suppress(XmlError):
            parse(text)
