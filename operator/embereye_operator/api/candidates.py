"""The fields of a candidate: changed settings of detection that judge the same data silently."""

from dataclasses import fields, replace
from typing import Any, Literal, TypeVar

from embereye_operator.api.models import DetectionModel
from embereye_operator.api.schema import Resource, Rule, described

T = TypeVar("T")


class HeatChange(Resource):
    """Changed thresholds for heat."""

    pre_alarm_celsius: float | None = described("°C.", default=None, between=(-40, 300))
    alarm_celsius: float | None = described("°C.", default=None, between=(-40, 300))
    critical_celsius: float | None = described("°C.", default=None, between=(-40, 300))
    rise_celsius_per_minute: float | None = described("°C per minute.", default=None, between=(0.5, 100))
    rise_allowance_celsius: float | None = described("°C.", default=None, between=(0, 50))


class GasChange(Resource):
    """Changed thresholds for gas."""

    pre_alarm_ppm: float | None = described("ppm CO2-equivalent.", default=None, between=(1, 1_000_000))
    alarm_ppm: float | None = described("ppm CO2-equivalent.", default=None, between=(1, 1_000_000))


class PercentChange(Resource):
    """Changed thresholds on an analog channel."""

    pre_alarm_percent: float | None = described("% of the converter's range.", default=None, between=(0, 100))
    alarm_percent: float | None = described("% of the converter's range.", default=None, between=(0, 100))


class SensorThresholds(Resource):
    """The thresholds that differ from the fleet's."""

    thermal: HeatChange | None = described("Heat.", default=None)
    gas: GasChange | None = described("Gas.", default=None)
    smoke: PercentChange | None = described("Smoke.", default=None)
    flame: PercentChange | None = described("Flame.", default=None)


class Candidate(Resource):
    """Changed settings of detection. They raise no alarm until they are promoted."""

    RULES = (
        Rule(
            "!has(self.version)",
            "cannot be tried silently, because a shard runs one version. Set spec.version of one fleet, and see "
            "docs/how-to/rollouts.md",
            lambda value, _: "version" not in value,
            field_path=".version",
        ),
    )
    name: str = described("A name for people, such as lower-gas.", default="candidate", min_length=1, max_length=63)
    promote: bool = described(
        "Use it as the detection in force. Later, write its settings into the fleet, and remove it.", default=False
    )
    max_differences: int = described(
        "Alarms that only one of both may raise until the condition CandidateDiffers is True.",
        default=0,
        between=(0, 100_000),
    )
    # Without the field, the API server would drop it silently.
    version: str | None = described("Refused: a shard runs one version.", default=None, max_length=63)


class SensorCandidate(Candidate):
    """Changed settings of detection. They raise no alarm until they are promoted."""

    thresholds: SensorThresholds = described("The thresholds that differ from the fleet's.", default=SensorThresholds)


class ScoreChange(Resource):
    """A changed threshold of a detector."""

    threshold: float | None = described("Score from 0 to 1.", default=None, between=(0, 1))


class SmokeChange(ScoreChange):
    """Changed settings of the detector for smoke."""

    scene: Literal["room", "yard", "landscape"] | None = described("What the cameras watch.", default=None)


class CameraThresholds(Resource):
    """The thresholds that differ from the fleet's."""

    flame: ScoreChange | None = described("Flame.", default=None)
    smoke: SmokeChange | None = described("Smoke.", default=None)
    heat: HeatChange | None = described("Heat, for cameras that send temperatures.", default=None)


class CameraCandidate(Candidate):
    """Changed settings of detection. They raise no alarm until they are promoted."""

    thresholds: CameraThresholds = described("The thresholds that differ from the fleet's.", default=CameraThresholds)
    model: DetectionModel | None = described("An ONNX model instead of the fleet's, or its first one.", default=None)


class SensorDetection(Resource):
    """A candidate beside the fleet's thresholds."""

    candidate: SensorCandidate | None = described(
        "Changed thresholds that judge the same data silently; every difference is recorded.", default=None
    )


def with_changes(base: T, change: Any) -> T:
    """Return `base` with the fields of `change` that are set; None changes nothing."""
    set_fields = {field.name: getattr(change, field.name) for field in fields(change)} if change else {}
    return replace(base, **{name: value for name, value in set_fields.items() if value is not None})  # type: ignore[type-var]


def with_thresholds(base: Any, changes: Any) -> dict[str, Any]:
    """Return the fields of `base` that `changes` has, each with the changes in it."""
    names = [field.name for field in fields(changes)]
    return {name: with_changes(getattr(base, name), getattr(changes, name)) for name in names}
