"""Ask an ONVIF device about its clock, services and model (ONVIF Core Specification, 8)."""

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
_ZONES = timedelta(hours=14)  # most that a local time can differ from UTC


@dataclass(frozen=True)
class Information:
    """The maker, model and serial number that a device reports."""

    manufacturer: str = ""
    model: str = ""
    serial: str = ""


def read_clock(answer: Element, now: datetime) -> datetime | None:
    """The device's clock; None if the answer does not have it.

    Some devices report only their local time, in an unknown zone. It is used only if it differs from `now` by more than
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
    """The address of each service, by namespace, in an answer to SERVICES."""
    addresses: dict[str, str] = {}
    for service in answer.all("Service"):
        name, address = service.value("Namespace").rstrip("/"), service.value("XAddr")
        if name and address:
            addresses.setdefault(name, address)
    return addresses


def read_capabilities(answer: Element) -> dict[str, str]:
    """The address of each service in an answer to CAPABILITIES, which older devices support."""
    media = answer.first("Media")
    address = media.value("XAddr") if media else ""
    return {MEDIA: address} if address else {}


def read_information(answer: Element) -> Information:
    """The maker, model and serial number in an answer to INFORMATION."""
    return Information(answer.value("Manufacturer"), answer.value("Model"), answer.value("SerialNumber"))
