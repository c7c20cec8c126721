import base64
import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from embereye.wire.onvif import device, discovery, media, soap
from embereye.wire.onvif.media import Profile
from embereye.wire.onvif.xml import parse

MEDIA1 = b"""<env:Envelope><env:Body><trt:GetProfilesResponse>
<trt:Profiles token="Profile_1" fixed="true"><tt:Name>mainStream</tt:Name>
<tt:VideoSourceConfiguration token="VideoSourceToken"><tt:Name>VideoSourceConfig</tt:Name><tt:UseCount>3</tt:UseCount>
<tt:SourceToken>VideoSource_1</tt:SourceToken><tt:Bounds x="0" y="0" width="2560" height="1440"/>
</tt:VideoSourceConfiguration>
<tt:AudioEncoderConfiguration token="a"><tt:Name>a</tt:Name>
<tt:Encoding>G711</tt:Encoding></tt:AudioEncoderConfiguration>
<tt:VideoEncoderConfiguration token="VideoEncoderToken_1"><tt:Name>VideoEncoder_1</tt:Name>
<tt:Encoding>H264</tt:Encoding>
<tt:Resolution><tt:Width>2560</tt:Width><tt:Height>1440</tt:Height></tt:Resolution><tt:Quality>4.000000</tt:Quality>
<tt:RateControl><tt:FrameRateLimit>25</tt:FrameRateLimit><tt:EncodingInterval>1</tt:EncodingInterval>
<tt:BitrateLimit>6144</tt:BitrateLimit></tt:RateControl></tt:VideoEncoderConfiguration></trt:Profiles>
<trt:Profiles token="metadata"><tt:Name>no video</tt:Name></trt:Profiles>
<trt:Profiles><tt:Name>no token</tt:Name></trt:Profiles>
</trt:GetProfilesResponse></env:Body></env:Envelope>"""
MEDIA2 = b"""<E><B><tr2:GetProfilesResponse>
<tr2:Profiles token="p1"><tr2:Name>sub &lt;1&gt;</tr2:Name><tr2:Configurations>
<tr2:VideoSource token="v"><tt:SourceToken>0</tt:SourceToken></tr2:VideoSource>
<tr2:VideoEncoder token="e" GovLength="30" Profile="Main"><tt:Name>e</tt:Name><tt:Encoding>H265</tt:Encoding>
<tt:Resolution><tt:Width>640</tt:Width><tt:Height>360</tt:Height></tt:Resolution>
<tt:RateControl ConstantBitRate="false"><tt:FrameRateLimit>12.500000</tt:FrameRateLimit>
<tt:BitrateLimit>512</tt:BitrateLimit>
</tt:RateControl></tr2:VideoEncoder></tr2:Configurations></tr2:Profiles></tr2:GetProfilesResponse></B></E>"""


def test_profiles_of_media_are_read():
    main, empty = media.read_profiles(parse(MEDIA1))
    assert main == Profile("Profile_1", "mainStream", "H264", 2560, 1440, 25.0, 6144, "VideoSource_1")
    assert empty == Profile("metadata", "no video", "")
    assert str(main) == '"mainStream" (H264 2560x1440, 25 frames/s)'
    assert str(empty) == '"no video" (no video)'


def test_profiles_of_media2_are_read():
    assert media.read_profiles(parse(MEDIA2)) == [Profile("p1", "sub <1>", "H265", 640, 360, 12.0, 512, "0")]


def test_the_number_of_profiles_read_is_limited():
    answer = b"<a>" + b'<Profiles token="t"/>' * (media.MOST_PROFILES + 10) + b"</a>"
    assert len(media.read_profiles(parse(answer))) == media.MOST_PROFILES


@pytest.mark.parametrize("number", ["", "-1", "1e9", "99999999999", "x", "٣"])
def test_an_implausible_number_is_read_as_zero(number):
    answer = MEDIA1.replace(b"2560</tt:Width>", number.encode() + b"</tt:Width>")
    assert media.read_profiles(parse(answer))[0].width == 0


def test_a_token_proves_the_password_without_containing_it():
    header = soap.username_token("me & you", "secret", b"0123456789abcdef", "2026-01-02T03:04:05Z")
    token = parse(soap.envelope("<a/>", header)).first("Header", "UsernameToken")
    digest = hashlib.sha1(b"0123456789abcdef2026-01-02T03:04:05Zsecret").digest()
    assert (token.value("Username"), base64.b64decode(token.value("Password"))) == ("me & you", digest)
    assert "secret" not in header


def test_tokens_use_the_cameras_clock():
    now = datetime(2026, 1, 2, 23, 0, 0, tzinfo=UTC)
    assert soap.created(now, timedelta(hours=3)) == "2026-01-03T02:00:00Z"
    assert soap.created(now, timedelta(days=4_000_000)) == "2026-01-02T23:00:00Z"


def test_the_clock_is_read_and_an_unreadable_clock_is_none():
    text = (
        b"<a><LocalDateTime><Hour>9</Hour></LocalDateTime><UTCDateTime><Time><Hour>1</Hour><Minute>2</Minute>"
        b"<Second>60</Second></Time><Date><Year>2026</Year><Month>2</Month><Day>3</Day></Date></UTCDateTime></a>"
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert device.read_clock(parse(text), now) == datetime(2026, 2, 3, 1, 2, 59, tzinfo=UTC)
    for damaged in (b"<a/>", text.replace(b"<Month>2", b"<Month>14"), text.replace(b"2026", b"9" * 30)):
        assert device.read_clock(parse(damaged), now) is None


@pytest.mark.parametrize(("year", "read"), [(1979, True), (2026, False)])
def test_a_clock_in_an_unknown_time_zone_is_used_if_it_was_never_set(year, read):
    text = (
        f"<a><LocalDateTime><Time><Hour>1</Hour><Minute>2</Minute><Second>3</Second></Time><Date><Year>{year}</Year>"
        "<Month>2</Month><Day>3</Day></Date></LocalDateTime></a>"
    )
    clock = device.read_clock(parse(text.encode()), datetime(2026, 2, 2, 14, 0, tzinfo=UTC))
    assert clock == (datetime(year, 2, 3, 1, 2, 3, tzinfo=UTC) if read else None)


@pytest.mark.parametrize(
    ("text", "reason", "unauthorized"),
    [
        (b"<Fault><Code><Value>s:Sender</Value><Subcode><Value>ter:NotAuthorized</Value></Subcode></Code><Reason>"
         b'<Text lang="en">Sender not\nAuthorized</Text></Reason></Fault>', "Sender not.Authorized", True),
        (b"<Fault><faultcode>wsse:FailedAuthentication</faultcode><faultstring>no</faultstring></Fault>", "no", True),
        (b"<Fault><Code><Value>s:Receiver</Value></Code></Fault>", "s:Receiver", False),
        (b"<Fault/>", "a fault without a reason", False),
    ],
)  # fmt: skip
def test_faults_of_both_versions_of_soap_are_read(text, reason, unauthorized):
    assert soap.read_fault(parse(b"<E><B>" + text + b"</B></E>")) == soap.Fault(reason, unauthorized)


def matches(body, related="urn:uuid:AB-1"):
    header = f"<Header><RelatesTo>{related}</RelatesTo></Header>"
    return f"<E>{header}<Body><ProbeMatches>{body}</ProbeMatches></Body></E>".encode()


CAMERA = (
    "<ProbeMatch><EndpointReference><Address>urn:uuid:7</Address></EndpointReference>"
    "<Types>dn:NetworkVideoTransmitter</Types>"
    "<Scopes>onvif://www.onvif.org/type/video_encoder onvif://www.onvif.org/name/Yard%20north "
    "onvif://www.onvif.org/hardware/X-1 onvif://www.onvif.org/location/city/Hall</Scopes>"
    "<XAddrs>http://10.0.0.7/onvif/device_service http://[fe80::7]/onvif/device_service</XAddrs></ProbeMatch>"
)


def test_answers_to_our_probe_are_read_and_others_ignored():
    (match,) = discovery.read_matches(matches(CAMERA), "ab-1")
    assert match.id == "urn:uuid:7"
    assert match.addresses == ["http://10.0.0.7/onvif/device_service", "http://[fe80::7]/onvif/device_service"]
    assert (match.name, match.hardware, match.location) == ("Yard north", "X-1", "city Hall")
    assert discovery.read_matches(matches(CAMERA, "urn:uuid:other"), "ab-1") == []
    assert discovery.read_matches(b"<!DOCTYPE a><a/>", "ab-1") == []


def test_unusable_addresses_are_left_out():
    odd = CAMERA.replace("http://10.0.0.7/onvif/device_service", "file:///etc/passwd http://:80/ ftp://x http://c:0/")
    odd = odd.replace("http://[fe80::7]/onvif/device_service", "http://[fe80")
    assert discovery.read_matches(matches(odd), "ab-1") == []


def test_the_number_of_devices_read_from_one_answer_is_limited():
    assert len(discovery.read_matches(matches(CAMERA * 100), "ab-1")) == discovery.MOST_MATCHES


def test_a_probe_has_the_standard_fields():
    request = parse(discovery.probe("ab-1"))
    assert request.value("MessageID") == "urn:uuid:ab-1"
    assert request.value("Body", "Probe", "Types").endswith(":NetworkVideoTransmitter")
