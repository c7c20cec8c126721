"""The fields of both kinds of fleets: devices' names and zones, ports, scaling, pods, alerts."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from embereye.units import HOUR, MILLISECOND, MINUTE, SECOND
from embereye_operator.api.exposure import NO_TLS_BEHIND_GATEWAY, Expose
from embereye_operator.api.schema import Constraint as Limit
from embereye_operator.api.schema import Duration, Quantity, Resource, Rule, described

GROUP = "embereye.dev"
VERSION = "v1alpha1"  # used by the operator, and stored by API servers
VERSIONS = (VERSION, "v1beta1")  # served versions; all have the same fields, so that conversion loses nothing
API_VERSION = f"{GROUP}/{VERSION}"
API_VERSIONS = tuple(f"{GROUP}/{version}" for version in VERSIONS)
GRPC_PORT = 50051  # of every shard's container
METRICS_PORT = 9100  # of every shard's container
CONTROL_PORT = 50055  # of every shard's container: for the operator and for other shards
MAX_DEVICES = 5000  # in a fleet; etcd refuses objects above 1.5 MB
MAX_SHARDS = 128
ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
ZONE = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
HUB_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def device_id(noun: str) -> Any:
    """Return the field `id` of a device."""
    return described(
        f"The {noun}'s id, which it sends; unique in the fleet.",
        pattern=ID,
        hint="is not an id: letters, digits, '.', '_', ':' and '-', starting with a letter or digit",
        max_length=63,
    )


def zone_name() -> Any:
    """Return the field `zone` of a device."""
    return described(
        "The zone whose alarm it can raise. Sensors and cameras in one namespace share zones by name.",
        pattern=ZONE,
        hint="is not a zone name: letters, digits, '.', '_' and '-'",
        max_length=63,
    )


def object_name(kind: str, description: str) -> Any:
    """Return a field with the name of an object of another `kind` in the fleet's namespace."""
    return described(description, pattern=OBJECT_NAME, hint=f"is not the name of a {kind}", max_length=253)


def ordered(low: str, high: str) -> Rule:
    """Return the rule that field `low` is not more than field `high`."""
    return Rule(
        f"self.{low} <= self.{high}",
        f"must not be more than {high}",
        lambda value, _: value[low] <= value[high],
        f".{low}",
    )


class PullSecret(Resource):
    """A Secret in the fleet's namespace for pulling images."""

    name: str = object_name(
        "Secret", "Name of a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg."
    )


class SecretReference(Resource):
    """A Secret in the fleet's namespace."""

    name: str = object_name("Secret", "Name of the Secret; its keys are username and password.")


class ConfigMapKey(Resource):
    """A ConfigMap in the fleet's namespace."""

    name: str = object_name("ConfigMap", "Name of the ConfigMap.")
    key: str = described("The key with the list as YAML or JSON; by default all keys.", default="", max_length=253)


class DevicesFrom(Resource):
    """A source of more devices."""

    config_map_ref: ConfigMapKey = described("A ConfigMap whose values are lists of devices.")


_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
NETWORK = (
    rf"^(({_BYTE}[.]){{3}}{_BYTE}/([0-9]|[12][0-9]|3[0-2])"
    r"|[0-9A-Fa-f:]{0,39}:[0-9A-Fa-f:.]{0,39}/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$"
)


class TokenSecret(Resource):
    """A Secret in the fleet's namespace with devices' tokens."""

    name: str = object_name(
        "Secret", "Name of the Secret. Key token: tokens for any device, one per line; key devices: lines of ID TOKEN."
    )


class TlsSecret(Resource):
    """A Secret in the fleet's namespace with the shards' certificate for devices."""

    name: str = object_name("Secret", "Name of a Secret with tls.crt and tls.key.")


class AuthoritySecret(Resource):
    """A Secret in the fleet's namespace with certificate authorities."""

    name: str = object_name("Secret", "Name of a Secret with ca.crt: one or several authorities.")


class ClientCertificates(Resource):
    """The client certificates of devices, and how they contain the devices' ids."""

    ca_ref: AuthoritySecret = described("The authorities that issue devices' certificates.")
    field: Literal["commonName", "dns", "uri"] = described(
        "The part of the certificate with the device's id: the subject's common name, or a subject alternative name.",
        default="commonName",
    )
    match: str = described(
        "The pattern of such a name; * is the device's id, for example *.devices.example.org.",
        default="*",
        pattern=r"^[^*]*[*][^*]*$",
        hint="must have exactly one *, for the device's id",
        max_length=253,
    )
    gateways: tuple[str, ...] = described(
        "Complete names whose certificates may send data for every device of the fleet.",
        default=(),
        max_items=64,
        item=Limit(min_length=1, max_length=253),
    )


RESERVED = ("embereye.internal", ".svc", ".cluster.local")  # endings of names that only our authority may certify


def _name_ends_with(end: str) -> str:
    return f"name.endsWith('{end}')"


class DeviceTls(Resource):
    """TLS between devices and shards."""

    RULES = (
        Rule(
            f"!has(self.names) || self.names.all(name, !({' || '.join(_name_ends_with(end) for end in RESERVED)}))",
            "must not end with embereye.internal, .svc or .cluster.local: the fleet's Service is always included",
            lambda value, _: not any(name.endswith(RESERVED) for name in value.get("names", ())),
            ".names",
        ),
        Rule(
            "!has(self.secretRef) || !has(self.names) || size(self.names) == 0",
            "have no effect with secretRef, because the certificate in the Secret has names",
            lambda value, _: not (value.get("secretRef") and value.get("names")),
            ".names",
        ),
    )
    secret_ref: TlsSecret | None = described(
        "The shards' certificate for devices; by default the operator's authority issues one.", default=None
    )
    names: tuple[str, ...] = described(
        "More host names and addresses that devices use, for the certificate of the operator's authority.",
        default=(),
        max_items=32,
        item=Limit(
            pattern=r"^([*][.])?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$|^[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*$",
            hint="is neither a host name nor an address",
            max_length=253,
        ),
    )
    clients: ClientCertificates | None = described(
        "Require certificates from devices. By default only the shard proves its identity.", default=None
    )


def _is_restricted(value: Mapping[str, Any]) -> bool:
    """True if the rules exclude any sender."""
    return bool(value.get("tokensRef") or value.get("networks") or (value.get("tls") or {}).get("clients"))


_RESTRICTS = (
    "has(self.tokensRef) || (has(self.networks) && size(self.networks) > 0) || (has(self.tls) && has(self.tls.clients))"
)


class DeviceAccess(Resource):
    """The devices whose data is accepted; see docs/how-to/security.md."""

    RULES = (
        Rule(
            f"self.open || {_RESTRICTS}",
            "needs tokensRef, networks or tls.clients, or open: true for anyone",
            lambda value, _: bool(value.get("open") or _is_restricted(value)),
        ),
        Rule(
            f"!(self.open && ({_RESTRICTS}))",
            "has open: true and also tokensRef, networks or tls.clients: choose one",
            lambda value, _: not (value.get("open") and _is_restricted(value)),
        ),
    )
    open: bool = described(
        "Accept data for any device from anyone who can reach the ports; raises a warning.", default=False
    )
    tokens_ref: TokenSecret | None = described("Require one of these tokens from gRPC senders.", default=None)
    networks: tuple[str, ...] = described(
        "Networks (CIDR) whose devices are accepted. Text devices send no token, so without networks none is accepted "
        "unless TLS certificates identify them.",
        default=(),
        max_items=64,
        item=Limit(pattern=NETWORK, hint="is not a network such as 10.1.0.0/16 or fd00:1::/64", max_length=49),
    )
    tls: DeviceTls | None = described(
        "TLS for gRPC, and at listen.tls for text devices. Turning it on or off restarts the shards.",
        default=None,
    )


IMMUTABLE = Rule(
    "self == oldSelf",
    "cannot be changed, because devices and firewalls use it: create another fleet instead",
    lambda new, old: bool(new == old),
    transition=True,
)


NOT_METRICS = Rule(
    f"!(self in [{METRICS_PORT}, {CONTROL_PORT}])",
    f"must not be {METRICS_PORT} or {CONTROL_PORT}: shards use them",
    lambda value, _: value not in {METRICS_PORT, CONTROL_PORT},
)


def listened(description: str, *, default: int | None = None, rules: tuple[Rule, ...] = (NOT_METRICS,)) -> Any:
    """Return a field with a port on which every shard listens."""
    return described(description, default=default, between=(1024, 65535), rules=rules)


class Heat(Resource):
    """Thresholds for temperatures. Informed by EN 54-5; no compliance is claimed."""

    RULES = (ordered("preAlarmCelsius", "alarmCelsius"), ordered("alarmCelsius", "criticalCelsius"))
    pre_alarm_celsius: float = described(
        "°C; alarms only together with another kind of evidence.", default=47.0, between=(-40, 300)
    )
    alarm_celsius: float = described("°C.", default=57.0, between=(-40, 300))
    critical_celsius: float = described("°C; alarms immediately.", default=90.0, between=(-40, 300))
    rise_celsius_per_minute: float = described(
        "Rate of rise, in °C per minute, above which riseAllowanceCelsius lowers the pre-alarm and alarm thresholds.",
        default=4.0,
        between=(0.5, 100),
    )
    rise_allowance_celsius: float = described("°C.", default=10.0, between=(0, 50))


class Point(Resource):
    """A point of a picture. Not x and y: YAML 1.1 reads a bare y as true."""

    left: float = described("From the left edge, as a share of the width.", between=(0, 1))
    top: float = described("From the top edge, as a share of the height.", between=(0, 1))


def corners() -> Any:
    """Return the field with the corners of a polygon in a picture."""
    return described("The corners of the polygon, in order.", min_items=3, max_items=32)


class MeasuringArea(Resource):
    """A named region of a thermal picture with a separate limit."""

    name: str = described(
        "Its name in pictures and messages, such as belt.",
        pattern=r"^[^\x00-\x20]([^\x00-\x1f]*[^\x00-\x20])?$",
        hint="begins or ends with a space, or has a control character",
        max_length=40,
    )
    points: tuple[Point, ...] = corners()
    limit: float = described(
        "The alarm is raised from this value on: °C, or °C per minute for rise.", between=(-40, 2000)
    )
    kind: Literal["highest", "mean", "rise"] = described(
        "What is compared with the limit. highest: the highest temperature, and the fleet's thresholds for heat do not "
        "apply in the area; mean: the mean temperature; rise: how fast the highest temperature rises.",
        default="highest",
    )


def measuring_areas() -> Any:
    """Return the field with a device's measuring areas."""
    return described("Regions of its thermal picture with separate limits.", default=(), list_key="name", max_items=16)


class ScaleDown(Resource):
    """The removal of shards."""

    stabilization: Duration = described(
        "Shards are removed down to the highest number required within this window.",
        default=Duration(300 * SECOND),
        between=(SECOND, HOUR),
    )


class Autoscaling(Resource):
    """The decision on the number of shards."""

    RULES = (ordered("minShards", "maxShards"),)
    mode: Literal["embedded", "hpa", "keda", "none"] = described(
        "Who sets spec.shards. embedded: the operator; hpa, keda: that autoscaler, by embereye_fleet_required_shards; "
        "none: you.",
        default="embedded",
    )
    observe: bool = described("Report decisions without acting on them.", default=False)
    min_shards: int = described("The fewest shards.", default=1, between=(1, MAX_SHARDS))
    max_shards: int = described("The most shards.", default=8, between=(1, MAX_SHARDS))
    target_utilization: float = described(
        "Share of one core that each shard should use.", default=0.7, between=(0.1, 0.95)
    )
    queue_depth: int = described(
        "Items waiting per shard above which a shard is added.", default=5000, between=(1, 10_000_000)
    )
    catch_up: Duration = described(
        "Time within which a backlog should be worked off.", default=Duration(MINUTE), between=(SECOND, HOUR)
    )
    scale_down: ScaleDown = described("The removal of shards.", default=ScaleDown)


class Toleration(Resource):
    """A toleration as in the Kubernetes API."""

    key: str = described("Taint key; empty: all.", default="", max_length=316)
    operator: Literal["Exists", "Equal"] = described("How the value is compared.", default="Equal")
    value: str = described("Taint value.", default="", max_length=63)
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = described("Empty: all effects.", default="")
    toleration_seconds: int | None = described(
        "How long a NoExecute taint is tolerated.", default=None, between=(0, None)
    )


class TopologySpread(Resource):
    """The spread of the fleet's shards; the operator sets the label selector."""

    topology_key: str = described("Node label.", max_length=316, min_length=1)
    max_skew: int = described("Largest permitted difference in the number of pods.", default=1, between=(1, 100))
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = described(
        "What to do when the spread cannot be achieved.", default="ScheduleAnyway"
    )


class Resources(Resource):
    """Resource requests and limits of a shard."""

    requests: Mapping[str, Quantity] = described("For example cpu: 500m, memory: 256Mi.", default=dict, max_items=8)
    limits: Mapping[str, Quantity] = described("For example memory: 1Gi.", default=dict, max_items=8)


class Template(Resource):
    """Settings for every shard's pod."""

    resources: Resources = described(
        "Resource requests and limits. Resources in neither get defaults: a request and a limit for memory, a request "
        "for CPU.",
        default=Resources,
    )
    node_selector: Mapping[str, str] = described("Node labels.", default=dict, max_items=32, item=Limit(max_length=63))
    tolerations: tuple[Toleration, ...] = described("Taints that the pods tolerate.", default=(), max_items=32)
    topology_spread: tuple[TopologySpread, ...] = described(
        "If absent, pods are spread over nodes, and over zones if nodes have them, as far as possible.",
        default=(),
        max_items=8,
    )
    priority_class_name: str = described("Priority class of the pods.", default="", max_length=253)
    image_pull_secrets: tuple[PullSecret, ...] = described(
        "Secrets with which the kubelet pulls the shards' image from its registry.", default=(), max_items=8
    )


class Alerts(Resource):
    """Alerts about this fleet. Their rules belong to the release: see monitoring.rules in its values."""

    enabled: bool = described("Let this fleet's alerts fire.", default=True)
    labels: Mapping[str, str] = described(
        "Not used: route alerts by their labels namespace, kind and fleet; monitoring.rules.labels adds labels.",
        default=dict,
        max_items=32,
        item=Limit(max_length=200),
    )
    runbook_url: str = described(
        "Not used: set monitoring.rules.runbookUrl in the release's values.",
        default="",
        pattern="^(https?://[!-~]+)?$",
        hint="is not a URL",
        max_length=1024,
    )


class Canary(Resource):
    """A synthetic fire that each shard sends through its path to an alarm; people see only a heartbeat."""

    interval: Duration = described(
        "Interval between synthetic fires of a shard; 0s disables them.",
        default=Duration(MINUTE),
        between=(10 * SECOND, HOUR),
        off=True,
    )
    within: Duration = described(
        "Time within which the hub must raise the alarm after the fire's first sign.",
        default=Duration(10 * SECOND),
        between=(SECOND, 10 * MINUTE),
    )


def deadline(seconds: int) -> Any:
    """Return the field `deadline`, by default `seconds`."""
    return described(
        "Time without analysed data after which a device is dark.",
        default=Duration(seconds * SECOND),
        between=(100 * MILLISECOND, HOUR),
    )


def device_list(noun: str) -> Any:
    """Return the field with the fleet's devices."""
    return described(f"The fleet's {noun}.", default=(), list_key="id", max_items=MAX_DEVICES)


def more_devices(noun: str) -> Any:
    """Return the field with ConfigMaps of devices."""
    return described(f"More {noun}, from ConfigMaps in the fleet's namespace.", default=(), max_items=32)


class FleetSpec(Resource):
    """The fields that both kinds of fleets have."""

    RULES: ClassVar[tuple[Rule, ...]] = (NO_TLS_BEHIND_GATEWAY,)
    canary: Canary = described(
        "A synthetic fire by which each shard regularly proves its path to an alarm.", default=Canary
    )
    access: DeviceAccess | None = described(
        "The devices whose data is accepted. By default anyone, as with open: true, which raises a warning.",
        default=None,
    )
    expose: Expose | None = described(
        "How devices outside the cluster reach it. By default only pods can, as with ClusterIP.", default=None
    )
    shards: int = described(
        "Number of shards that share the devices. kubectl scale, HPA and KEDA write it.",
        default=1,
        between=(1, MAX_SHARDS),
    )
    autoscaling: Autoscaling = described("How the number of shards is decided.", default=Autoscaling)
    image: str = described(
        "Image of the shards; by default the operator's. A change is rolled out shard by shard.",
        default="",
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9._:/@-]*[A-Za-z0-9])?)?$",
        hint="is not an image such as registry.example.com/embereye:1.2.3",
        max_length=512,
    )
    version: str = described(
        "Tag of the operator's image for the shards; ignored if image is set.",
        default="",
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]*)?$",
        hint="is not a tag",
        max_length=128,
    )
    hub: str = described(
        "Name of the hub that it reports to, from hubs in the release's values. By default the hub for its namespace, "
        "or else the release's default hub. A change is rolled out shard by shard.",
        default="",
        pattern=rf"^({HUB_NAME.strip('^$')})?$",
        hint="is not the name of a hub: lower-case letters, digits and '-'",
        max_length=20,
    )
    template: Template = described("Settings for every shard's pod.", default=Template)
    alerts: Alerts = described("Alert rules for Prometheus.", default=Alerts)
    paused: bool = described("Stop reconciling, and change nothing.", default=False)
