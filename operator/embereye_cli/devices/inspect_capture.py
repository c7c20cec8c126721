"""Decode a capture of a sensor's bytes, packet by packet."""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embereye.detect.sensing.mq135 import ppm
from embereye.detect.sensing.thresholds import Thresholds, percent
from embereye.detect.thermal.mlx90640 import EMISSIVITY, FRAME_WORDS, SUBPAGE, Auxiliary, Calibration, words_of
from embereye.process.files import system_errors
from embereye.process.lifecycle import NotFoundError, UserError
from embereye.process.telemetry.logs import visible
from embereye.units import counted
from embereye.wire.device.messages import (
    Eeprom,
    FrameWords,
    Garbage,
    LocationId,
    Message,
    SensorReading,
    SerialNumber,
)
from embereye.wire.device.reader import LineReader
from embereye_cli.terminal import camel_keys
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

THRESHOLDS = Thresholds(build_sensor_settings(SensorFleetSpec()))  # the defaults of a fleet


@dataclass(frozen=True)
class Packet:
    """A message, and the offset of its line in the capture."""

    offset: int  # bytes
    message: Message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `embereye inspect`."""
    parser.add_argument("capture", type=Path, help="file with the bytes that a device sent; - for standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--out", type=Path, metavar="FILE.npy", help="write the temperatures, float32 (n, 24, 32) °C")
    parser.add_argument(
        "--emissivity",
        type=float,
        default=EMISSIVITY,
        help=f"emissivity of the surfaces in view, 0 to 1 ({EMISSIVITY})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the capture. UserError if it cannot be read, or its frames have no calibration."""
    if not 0 < arguments.emissivity <= 1:
        raise UserError(f"--emissivity {arguments.emissivity:g} is not above 0 and at most 1")
    name = "standard input" if str(arguments.capture) == "-" else str(arguments.capture)
    report = inspect(_read(arguments.capture), arguments.emissivity)
    try:
        if arguments.json:
            print(json.dumps(camel_keys(report.as_json())))
        else:
            for line in report.as_text():
                print(visible(line))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader stopped, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not report.size:
        raise UserError(f"{name} is empty. Capture the bytes that the device sends.")
    if all(isinstance(packet.message, Garbage) for packet in report.packets):
        raise UserError(f"{name} has no line of a sensor, such as #Sensor1234:ADC1=277! or #frame1234:FFB8…!")
    if arguments.out:
        _write(arguments.out, report)
    elif report.frames and report.why_uncalibrated:
        raise UserError(f"{name}: no temperatures for {counted(report.frames, 'frame')}: {report.why_uncalibrated}")
    return 0


def _read(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} does not exist. Name a file with the bytes that a device sent.") from error
    except OSError as error:
        raise UserError(f"cannot read the capture {path}: {error.strerror or error}") from error


def _write(path: Path, report: "Report") -> None:
    if report.why_uncalibrated:
        raise UserError(f"there are no temperatures for --out {path}: {report.why_uncalibrated}")
    with system_errors(f"cannot write the temperatures to {path}"), path.open("wb") as file:
        np.save(file, report.celsius)


def packets(data: bytes) -> Iterator[Packet]:
    """Yield the messages in `data` with the offsets of their lines; an unfinished last line is garbage."""
    parser = LineReader()
    start = 0
    while (end := data.find(b"!", start)) >= 0:
        offset = _content(data, start, end)
        messages = parser.feed(data[start : end + 1])
        for message in messages:
            yield Packet(offset, message)
            offset = data.rfind(b"#", start, end)  # only a line that the next one cut off yields two
        start = end + 1
    offset = _content(data, start, len(data))
    if offset < len(data):
        yield Packet(offset, Garbage("not finished", len(data) - offset))


def _content(data: bytes, start: int, end: int) -> int:
    """The offset of the first byte between `start` and `end` that is not blank."""
    while start < end and data[start] in b" \t\r\n":
        start += 1
    return start


@dataclass(frozen=True)
class Report:
    """The decoded capture."""

    size: int  # bytes
    packets: tuple[Packet, ...]
    frames: int  # of any length
    calibrations: tuple[Calibration, ...]
    why_uncalibrated: str  # the reason why there are no temperatures; empty: there are some
    auxiliary: Auxiliary | None  # of the frames of 834 words, in order
    celsius: NDArray[np.float32]  # (n, 24, 32) of the same frames

    def as_json(self) -> dict[str, Any]:
        """One object: packets, and a summary."""
        return {"packets": list(self._records()), "summary": self.summary()}

    def as_text(self) -> Iterator[str]:
        """A line for each packet, then the summary."""
        for record in self._records():
            values = " ".join(
                f"{name}={_text(value)}" for name, value in record.items() if name not in {"offset", "type"}
            )
            yield f"{record['offset']:>10}  {record['type']:<9} {values}"
        summary = self.summary()
        counts = ", ".join(f"{count} {name}" for name, count in summary["packets"].items()) or "no packets"
        yield ""
        yield f"{counted(self.size, 'byte')}: {counts}"
        if summary["garbage"]:
            yield "garbage: " + ", ".join(f"{count} {reason}" for reason, count in summary["garbage"].items())
        if summary["devices"]:
            yield "devices: " + ", ".join(summary["devices"])
        if "temperature_c" in summary:
            low, mean, high = (summary["temperature_c"][name] for name in ("min", "mean", "max"))
            yield (
                f"temperatures: {low:.2f} to {high:.2f} °C, mean {mean:.2f} °C, "
                f"in {counted(len(self.celsius), 'frame')}; "
                f"chip {summary['ambient_c']:.2f} °C, supply {summary['vdd_v']:.3f} V"
            )
        elif self.why_uncalibrated:
            yield f"no temperatures: {self.why_uncalibrated}"
        if summary["bad_pixels"]:
            yield f"bad pixels, filled in from their neighbours: {', '.join(map(str, summary['bad_pixels']))}"

    def summary(self) -> dict[str, Any]:
        """Counts and extremes over the whole capture."""
        messages = [packet.message for packet in self.packets]
        summary: dict[str, Any] = {
            "bytes": self.size,
            "packets": dict(Counter(_kind(message) for message in messages)),
            "garbage": dict(Counter(message.reason for message in messages if isinstance(message, Garbage))),
            "devices": sorted({name for message in messages if (name := _device(message))}),
            "calibrated": bool(self.calibrations),
            "why_uncalibrated": self.why_uncalibrated,
            "bad_pixels": sorted({pixel for calibration in self.calibrations for pixel in calibration.bad_pixels}),
        }
        if self.auxiliary is not None and np.isfinite(self.celsius).any():
            summary["temperature_c"] = _extremes(self.celsius)
            summary["ambient_c"] = _rounded(np.mean(self.auxiliary.ambient[self.auxiliary.valid]))
            summary["vdd_v"] = _rounded(np.mean(self.auxiliary.vdd[self.auxiliary.valid]))
        return summary

    def _records(self) -> Iterator[dict[str, Any]]:
        frame = 0
        for packet in self.packets:
            message = packet.message
            record: dict[str, Any] = {"offset": packet.offset, "type": _kind(message)}
            if device := _device(message):
                record["device"] = device
            match message:
                case SensorReading():
                    record |= _reading(message)
                case FrameWords(_, words):
                    record["words"] = len(words) // 2
                    if len(words) == FRAME_WORDS * 2:
                        record["subpage"] = words_of(words)[SUBPAGE].item() & 1
                        if self.auxiliary is not None:
                            record |= self._frame(frame)
                        frame += 1
                case Eeprom():
                    record |= _eeprom(message)
                case Garbage(reason, length):
                    record |= {"reason": reason, "length": length}
            yield record

    def _frame(self, index: int) -> dict[str, Any]:
        assert self.auxiliary is not None
        measured = {"ambient_c": self.auxiliary.ambient[index], "vdd_v": self.auxiliary.vdd[index]}
        known: dict[str, Any] = {name: _rounded(value) for name, value in measured.items() if np.isfinite(value)}
        if np.isfinite(self.celsius[index]).any():
            return {f"{name}_c": value for name, value in _extremes(self.celsius[index]).items()} | known
        return known | {"damaged": True}


def inspect(data: bytes, emissivity: float = EMISSIVITY) -> Report:
    """Read a capture. An EEPROM calibrates all frames of its device, also those before it.

    The first EEPROM in the capture calibrates the frames of devices without one.
    """
    decoded = tuple(packets(data))
    calibrations: dict[str | None, Calibration] = {}
    why = "the capture has no EEPROM. Send EEPROM1 to the device and capture its answer too"
    for packet in decoded:
        if isinstance(packet.message, Eeprom):
            try:
                calibrations.setdefault(packet.message.id, Calibration.from_eeprom(packet.message.words))
            except ValueError as error:
                why = f"the EEPROM at offset {packet.offset} is not usable: {error}"
    frames = [packet.message for packet in decoded if isinstance(packet.message, FrameWords)]
    whole = [frame for frame in frames if len(frame.words) == FRAME_WORDS * 2]
    celsius = np.empty((len(whole) if calibrations else 0, 24, 32), np.float32)
    auxiliary = None
    if calibrations and whole:
        why = ""
        batch = np.stack([words_of(frame.words) for frame in whole])
        first = next(iter(calibrations))
        owners = [frame.location if frame.location in calibrations else first for frame in whole]
        auxiliary = calibrations[first].auxiliary(batch)
        for owner, calibration in calibrations.items():
            mine = np.array([name == owner for name in owners])
            part = calibration.auxiliary(batch[mine])
            celsius[mine] = calibration.temperatures(batch[mine], emissivity, auxiliary=part)
            for field in fields(Auxiliary):
                getattr(auxiliary, field.name)[mine] = getattr(part, field.name)
    elif calibrations:
        why = f"the capture has no frame of {FRAME_WORDS} words, which calibration needs"
    return Report(len(data), decoded, len(frames), tuple(calibrations.values()), why, auxiliary, celsius)


def _kind(message: Message) -> str:
    return {
        SensorReading: "reading",
        FrameWords: "frame",
        Eeprom: "eeprom",
        SerialNumber: "serial",
        LocationId: "location",
        Garbage: "garbage",
    }[type(message)]


def _device(message: Message) -> str | None:
    match message:
        case SensorReading(location) | FrameWords(location, _):
            return location
        case Eeprom(name, _) | SerialNumber(name) | LocationId(name):
            return name
        case Garbage():
            return None


def _eeprom(message: Eeprom) -> dict[str, Any]:
    record: dict[str, Any] = {"words": len(message.words) // 2}
    try:
        calibration = Calibration.from_eeprom(message.words)
    except ValueError as error:
        return record | {"unusable": str(error)}
    return record | {
        "pattern": "chess" if calibration.chess else "interleaved",
        "resolution_bits": 16 + calibration.resolution,
        "bad_pixels": len(calibration.bad_pixels),
    }


def _reading(message: SensorReading) -> dict[str, Any]:
    record: dict[str, Any] = {}
    full_scale, board = THRESHOLDS.full_scale, THRESHOLDS.board
    for name, adc in (("smoke", message.smoke_adc), ("flame", message.flame_adc)):
        if adc is not None:
            record |= {f"{name}_adc": adc, f"{name}_percent": _rounded(percent(adc, full_scale))}
    if message.gas_adc is not None:
        record |= {"gas_adc": message.gas_adc, "gas_ppm": _rounded(ppm(message.gas_adc, board, full_scale))}
    if message.flame_detected is not None:
        record["flame_detected"] = message.flame_detected
    return record


def _extremes(celsius: NDArray[np.float32]) -> dict[str, float]:
    return {
        "min": _rounded(np.nanmin(celsius)),
        "mean": _rounded(np.nanmean(celsius, dtype=np.float64)),
        "max": _rounded(np.nanmax(celsius)),
    }


def _rounded(value: Any) -> float:
    return round(float(value), 3)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) >= 100 else f"{value:.4g}"
    return str(value)
