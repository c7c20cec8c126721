from embereye.wire.rtp.onvif_extension import MAX_STEPS, MAX_TABLES, JpegDescription, describe

SIZE = bytes.fromhex("ffc0 0011 08 0870 0f00 03 012200 021101 031101")  # 3840x2160
TABLE = b"\xff\xdb\0\x43\0" + bytes(range(64))


def test_a_size_and_tables_are_read_with_other_segments_in_between():
    comment = b"\xff\xfe\0\4hi"
    assert describe(TABLE + comment + b"\xff\xff" + SIZE + b"\xff") == JpegDescription(3840, 2160, TABLE)
    assert describe(TABLE) is None


def test_the_number_of_segments_read_is_limited():
    """A datagram has room for 16,000 segments: reading them all would take as long as thousands of packets."""
    for endless in (b"\xff\xdb\0\2", b"\xff\xfe\0\2", b"\xff"):
        assert describe(endless * MAX_STEPS + SIZE) is None


def test_the_size_of_stored_tables_is_limited():
    description = describe(SIZE + TABLE * 20)
    assert description
    assert description.tables.startswith(TABLE)
    assert len(description.tables) <= MAX_TABLES
