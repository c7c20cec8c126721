"""What is asked of an ONVIF device about itself (ONVIF Core Specification, 8)."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from embereye.wire.onvif.xml import Element

_DEVICE = "http://www.onvif.org/ver10/device/wsdl"
MEDIA = "http://www.onvif.org/ver10/media/wsdl"
MEDIA2 = "http://www.onvif.org/ver20/media/wsdl"
CLOCK = f'<GetSystemDateAndTime xmlns="{_DEVICE}"/>'
SERVICES = f'<GetServices xmlns="{_DEVICE}"><IncludeCapability>false</IncludeCapability></GetServices>'
CAPABILITIES = f'<GetCapabilities xmlns="{_DEVICE}"><Category>Media</Category></GetCapabilities>'
INFORMATION = f'<GetDeviceInformation xmlns="{_DEVICE}"/>'
_ZONES = timedelta(hours=14)  # that a local time differs from UTC at most


@dataclass(frozen=True)
class Information:
    """What a device says that it is."""

    manufacturer: str = ""
    model: str = ""
    serial: str = ""


def read_clock(answer: Element, now: datetime) -> datetime | None:
    """The device's clock; None where the answer does not hold it.

    Some tell their local time alone, in a zone that is not known. It is taken where it differs from `now` by more than
    any zone does: then the clock was never set.
    """
    if utc := answer.first("UTCDateTime"):
        return _read_time(utc)
    local = answer.first("LocalDateTime")
    clock = _read_time(local) if local else None
    return clock if clock and abs(clock - now) > _ZONES else None


def _read_time(element: Element) -> datetime | None:
    try:
        numbers = [int(element.value(name)) for name in ("Year", "Month", "Day", "Hour", "Minute", "Second")]
        return datetime(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], min(numbers[5], 59), tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def read_services(answer: Element) -> dict[str, str]:
    """The address of each service, by its namespace, of an answer to SERVICES."""
    found: dict[str, str] = {}
    for service in answer.all("Service"):
        name, address = service.value("Namespace").rstrip("/"), service.value("XAddr")
        if name and address:
            found.setdefault(name, address)
    return found


def read_capabilities(answer: Element) -> dict[str, str]:
    """The same of an answer to CAPABILITIES, which older devices give."""
    media = answer.first("Media")
    address = media.value("XAddr") if media else ""
    return {MEDIA: address} if address else {}


def read_information(answer: Element) -> Information:
    """What the device says that it is."""
    return Information(answer.value("Manufacturer"), answer.value("Model"), answer.value("SerialNumber"))
