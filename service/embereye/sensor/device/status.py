"""The status of one sensor, for the hub, the operator and the metrics.

`Fleet` asks for a device's status, the metrics for its measurements. Both are derived from the device on each call, and
nothing is stored. Values of faulty sensors are left out.
"""

import math

import numpy as np

from embereye.detect.sensing.mq135 import ppm, resistance_kohm
from embereye.detect.sensing.thresholds import percent
from embereye.levels import Kind
from embereye.sensor.device.arrivals import RIVAL_NS
from embereye.sensor.device.frames import ThermalImage
from embereye.sensor.device.levels import FLAME, GAS, SMOKE
from embereye.sensor.device.sensor import FRAMES, SensorDevice
from embereye.shard.coverage import duration
from embereye.v1.evidence_pb2 import DeviceStatus, ThermalPicture
from embereye.v1.types_pb2 import Term
from embereye.wire.readings.quantity import QUANTITIES

Measurement = tuple[str, float, str]  # name, value, unit
KINDS = {"smoke": SMOKE, "flame": FLAME, "gas": GAS}


def device_status(device: SensorDevice, now_ns: int, deadline_ns: int, *, thermal: bool = True) -> DeviceStatus:
    """Coverage, ledger, latest measurements and, if `thermal`, picture at `now_ns`, nanoseconds of the timeline."""
    reason = device.reason(now_ns, deadline_ns)
    watch = device.arrivals.watch
    status = DeviceStatus(
        id=device.spec.id,
        zone=device.spec.zone,
        covered=not reason,
        reason=reason,
        heard_ns=watch.heard_ns,
        analysed_ns=watch.analysed_ns,
        ledger=device.arrivals.ledger.message(),
        latest=[Term(name=name, value=value, unit=unit) for name, value, unit in measurements(device)],
        state=_state(device, now_ns, deadline_ns),
        degraded=device.frames.degraded or device.states.degraded,
    )
    if thermal and (picture := device.frames.picture) is not None:
        status.thermal.CopyFrom(_thermal(picture, device))
    return status


def measurements(device: SensorDevice) -> list[Measurement]:
    """The latest measurements, without those of faulty sensors."""
    faulty = {*device.levels.blind, *(KINDS[name] for name in device.faults if name in KINDS)}
    return [*_of_readings(device, faulty), *_of_frames(device), *_of_states(device)]


def _of_states(device: SensorDevice) -> list[Measurement]:
    return [(name, value, QUANTITIES[name].unit or "1") for name, value in sorted(device.states.values.items())]


def _of_readings(device: SensorDevice, faulty: set[Kind]) -> list[Measurement]:
    smoke, flame, gas, digital = device.arrivals.row
    thresholds = device.readings.thresholds
    full_scale, board = thresholds.full_scale, thresholds.board
    values: list[Measurement] = []
    if not math.isnan(smoke) and SMOKE not in faulty:
        values.append(("smoke", float(percent(smoke, full_scale)), "%"))
    if not math.isnan(flame) and FLAME not in faulty:
        values.append(("flame", float(percent(flame, full_scale)), "%"))
    if not math.isnan(digital):
        values.append(("flame.digital", float((digital != 0) != thresholds.active_low), "1"))
    if not math.isnan(gas) and GAS not in faulty:
        values.append(("gas", float(ppm(gas, board, full_scale)), "ppm"))
        values.append(("gas.resistance", float(resistance_kohm(gas, board, full_scale)), "kOhm"))
    return values


def _of_frames(device: SensorDevice) -> list[Measurement]:
    frames = device.frames
    values: list[Measurement] = []
    if frames.replaced:
        values.append(("pixels.replaced", float(len(frames.replaced)), "1"))
    if frames.damaged:
        values.append(("frames.damaged", float(frames.damaged), "1"))
    if frames.assessment is not None and FRAMES not in device.faults:
        values += [(name, value, unit) for name, value, _, unit in frames.assessment.measured]
        if frames.picture is not None and not frames.picture.relative:
            values.append(("temperature.mean", float(np.nanmean(frames.picture.pixels)), "°C"))
    return values


def _thermal(picture: ThermalImage, device: SensorDevice) -> ThermalPicture:
    """The picture's message: °C, or counts above their median."""
    pixels = picture.pixels - np.median(picture.pixels) if picture.relative else picture.pixels
    return ThermalPicture(celsius=pixels.ravel().tolist(), relative=picture.relative, areas=device.spec.areas)


def _sleeping_state(device: SensorDevice, now_ns: int) -> str:
    silent = now_ns - device.arrivals.watch.heard_ns
    state = f"last check-in {duration(silent)} ago, allowed {duration(device.deadline_ns)}"
    if tested_ns := device.states.tested_ns:
        state += f"; test button pressed {duration(now_ns - tested_ns)} ago"
    return state


def _state(device: SensorDevice, now_ns: int, deadline_ns: int) -> str:
    heard_ns = device.arrivals.watch.heard_ns
    if not heard_ns:
        return "waiting"
    if device.deadline_ns:
        return _sleeping_state(device, now_ns)
    if now_ns - heard_ns > deadline_ns:
        return "silent"
    state = "streaming"
    if device.frames.picture is not None:
        state = "streaming, calibrated" if device.frames.calibration else "streaming, uncalibrated"
    arrivals = device.arrivals
    if arrivals.rival and now_ns - arrivals.rival_ns <= RIVAL_NS:
        state += f"; {arrivals.rival} also sends as this device and is refused"
    return state
