from embereye.wire.rtp.onvif_extension import MAX_STEPS, MAX_TABLES, JpegDescription, describe

SIZE = bytes.fromhex("ffc0 0011 08 0870 0f00 03 012200 021101 031101")  # 3840x2160
TABLE = b"\xff\xdb\0\x43\0" + bytes(range(64))


def test_a_size_and_tables_are_read_whatever_stands_between_them():
    comment = b"\xff\xfe\0\4hi"
    assert describe(TABLE + comment + b"\xff\xff" + SIZE + b"\xff") == JpegDescription(3840, 2160, TABLE)
    assert describe(TABLE) is None


def test_no_more_is_read_than_a_camera_sends():
    """A datagram has room for 16,000 segments: to read them all takes as long as thousands of packets."""
    for endless in (b"\xff\xdb\0\2", b"\xff\xfe\0\2", b"\xff"):
        assert describe(endless * MAX_STEPS + SIZE) is None


def test_no_more_tables_are_kept_than_a_picture_has():
    found = describe(SIZE + TABLE * 20)
    assert found
    assert found.tables.startswith(TABLE)
    assert len(found.tables) <= MAX_TABLES
