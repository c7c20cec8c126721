"""What fleets of both kinds declare: devices' names and zones, ports, scaling, pods, alerts."""
# ruff: noqa: RUF009 (every field is made by `described`, which is dataclasses.field with a schema)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from embereye.units import HOUR, MILLISECOND, MINUTE, SECOND
from embereye_operator.api.schema import Constraint as Limit
from embereye_operator.api.schema import Duration, Quantity, Resource, Rule, described

GROUP = "embereye.dev"
VERSION = "v1alpha1"  # that the operator speaks, and API servers store
VERSIONS = (VERSION, "v1beta1")  # that are served; the same fields in each, so that nothing is lost between them
API_VERSION = f"{GROUP}/{VERSION}"
API_VERSIONS = tuple(f"{GROUP}/{version}" for version in VERSIONS)
GRPC_PORT = 50051  # of every shard's container
METRICS_PORT = 9100  # of every shard's container
CONTROL_PORT = 50055  # of every shard's container: for the operator and for other shards
MAX_DEVICES = 5000  # declared in a fleet; etcd refuses objects of more than 1.5 MB
MAX_SHARDS = 128
ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
ZONE = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
HUB_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def device_id(what: str) -> Any:
    """The field `id` of a device."""
    return described(
        f"What the {what} calls itself, unique in the fleet.",
        pattern=ID,
        hint="is not an id: letters, digits, '.', '_', ':' and '-', beginning with a letter or digit",
        max_length=63,
    )


def zone_name() -> Any:
    """The field `zone` of a device."""
    return described(
        "The zone whose alarm it belongs to; sensors and cameras of one namespace share zones by name.",
        pattern=ZONE,
        hint="is not a zone name: letters, digits, '.', '_' and '-'",
        max_length=63,
    )


def ordered(low: str, high: str) -> Rule:
    """The rule that field `low` is not more than field `high`."""
    return Rule(
        f"self.{low} <= self.{high}",
        f"must not be more than {high}",
        lambda value, _: value[low] <= value[high],
        f".{low}",
    )


@dataclass(frozen=True, slots=True)
class PullSecret(Resource):
    """A Secret in the fleet's namespace that images are pulled with."""

    name: str = described(
        "Name of a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg.",
        pattern=OBJECT_NAME,
        hint="is not the name of a Secret",
        max_length=253,
    )


@dataclass(frozen=True, slots=True)
class ConfigMapKey(Resource):
    """A ConfigMap in the fleet's namespace."""

    name: str = described(
        "Name of the ConfigMap.", pattern=OBJECT_NAME, hint="is not the name of a ConfigMap", max_length=253
    )
    key: str = described(
        "The key that holds the list as YAML or JSON; all keys where it is not given.", default="", max_length=253
    )


@dataclass(frozen=True, slots=True)
class DevicesFrom(Resource):
    """Where more devices are declared."""

    config_map_ref: ConfigMapKey = described("A ConfigMap whose values are lists of devices.")


_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
NETWORK = (
    rf"^(({_BYTE}[.]){{3}}{_BYTE}/([0-9]|[12][0-9]|3[0-2])"
    r"|[0-9A-Fa-f:]{0,39}:[0-9A-Fa-f:.]{0,39}/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$"
)


@dataclass(frozen=True, slots=True)
class TokenSecret(Resource):
    """A Secret in the fleet's namespace with devices' tokens."""

    name: str = described(
        "Name of the Secret; its key token has tokens for every device, one in a line, devices lines of ID and TOKEN.",
        pattern=OBJECT_NAME,
        hint="is not the name of a Secret",
        max_length=253,
    )


@dataclass(frozen=True, slots=True)
class TlsSecret(Resource):
    """A Secret in the fleet's namespace with the certificate that devices are shown."""

    name: str = described(
        "Name of a Secret with tls.crt and tls.key.",
        pattern=OBJECT_NAME,
        hint="is not the name of a Secret",
        max_length=253,
    )


@dataclass(frozen=True, slots=True)
class AuthoritySecret(Resource):
    """A Secret in the fleet's namespace with certificate authorities."""

    name: str = described(
        "Name of a Secret with ca.crt: one or several authorities.",
        pattern=OBJECT_NAME,
        hint="is not the name of a Secret",
        max_length=253,
    )


@dataclass(frozen=True, slots=True)
class ClientCertificates(Resource):
    """Certificates that devices show, and how they say whose they are."""

    ca_ref: AuthoritySecret = described("The authorities that devices' certificates are of.")
    field: Literal["commonName", "dns", "uri"] = described(
        "Where a device's id stands: the subject's common name, or a subject alternative name.", default="commonName"
    )
    match: str = described(
        "What such a name looks like; * stands for the device's id, for example *.devices.example.org.",
        default="*",
        pattern=r"^[^*]*[*][^*]*$",
        hint="has not exactly one *, which stands for the device's id",
        max_length=253,
    )
    gateways: tuple[str, ...] = described(
        "Names, whole, whose certificates speak for every device of the fleet.",
        default=(),
        max_items=64,
        item=Limit(min_length=1, max_length=253),
    )


RESERVED = ("embereye.internal", ".svc", ".cluster.local")  # how names end that a certificate has only by right


def _ends(end: str) -> str:
    return f"name.endsWith('{end}')"


@dataclass(frozen=True, slots=True)
class DeviceTls(Resource):
    """TLS between devices and shards."""

    RULES = (
        Rule(
            f"!has(self.names) || self.names.all(name, !({' || '.join(_ends(end) for end in RESERVED)}))",
            "must not end with embereye.internal, .svc or .cluster.local: the fleet's own Service is named anyway",
            lambda value, _: not any(name.endswith(RESERVED) for name in value.get("names", ())),
            ".names",
        ),
        Rule(
            "!has(self.secretRef) || !has(self.names) || size(self.names) == 0",
            "mean nothing beside secretRef: the certificate in the Secret has its own",
            lambda value, _: not (value.get("secretRef") and value.get("names")),
            ".names",
        ),
    )
    secret_ref: TlsSecret | None = described(
        "The certificate that devices are shown; without it the operator's own authority issues one.", default=None
    )
    names: tuple[str, ...] = described(
        "Names and addresses beside the Service's that devices dial, for the certificate of the operator's authority.",
        default=(),
        max_items=32,
        item=Limit(
            pattern=r"^([*][.])?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$|^[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*$",
            hint="is neither a name of a host nor an address",
            max_length=253,
        ),
    )
    clients: ClientCertificates | None = described(
        "Devices have to show a certificate; without it TLS proves the shard to devices alone.", default=None
    )


def _restricts(value: Mapping[str, Any]) -> bool:
    """Whether what is said of access keeps anybody out."""
    return bool(value.get("tokensRef") or value.get("networks") or (value.get("tls") or {}).get("clients"))


_RESTRICTS = (
    "has(self.tokensRef) || (has(self.networks) && size(self.networks) > 0) || (has(self.tls) && has(self.tls.clients))"
)


@dataclass(frozen=True, slots=True)
class DeviceAccess(Resource):
    """Which devices are listened to; see docs/how-to/security.md."""

    RULES = (
        Rule(
            f"self.open || {_RESTRICTS}",
            "says none of tokensRef, networks and tls.clients: name one, or say open: true for everybody",
            lambda value, _: bool(value.get("open") or _restricts(value)),
        ),
        Rule(
            f"!(self.open && ({_RESTRICTS}))",
            "says open: true beside tokensRef, networks or tls.clients, which would then mean nothing: choose",
            lambda value, _: not (value.get("open") and _restricts(value)),
        ),
    )
    open: bool = described(
        "Everybody who reaches the ports may speak for any device; told as a warning.", default=False
    )
    tokens_ref: TokenSecret | None = described("Senders over gRPC show one of these tokens.", default=None)
    networks: tuple[str, ...] = described(
        "Networks as CIDRs that devices come from; without any, text devices, which prove nothing, come from nowhere.",
        default=(),
        max_items=64,
        item=Limit(pattern=NETWORK, hint="is not a network such as 10.1.0.0/16 or fd00:1::/64", max_length=49),
    )
    tls: DeviceTls | None = described(
        "gRPC speaks TLS alone; text devices may at listen.tls. Its beginning, and its end, roll the shards.",
        default=None,
    )


def device_access() -> Any:
    """The field `access` of a fleet's spec."""
    return described(
        "Which devices may send. Where it is not given everybody is, as with open: true, and told as a warning.",
        default=None,
    )


IMMUTABLE = Rule(
    "self == oldSelf",
    "cannot be changed: devices and firewalls know it; create another fleet instead",
    lambda new, old: bool(new == old),
    transition=True,
)


NOT_METRICS = Rule(
    f"!(self in [{METRICS_PORT}, {CONTROL_PORT}])",
    f"must not be {METRICS_PORT} or {CONTROL_PORT}: a shard uses them itself",
    lambda value, _: value not in {METRICS_PORT, CONTROL_PORT},
)


@dataclass(frozen=True, slots=True)
class Heat(Resource):
    """Temperatures that are signs of fire. Informed by EN 54-5; no compliance is claimed."""

    RULES = (ordered("preAlarmCelsius", "alarmCelsius"), ordered("alarmCelsius", "criticalCelsius"))
    pre_alarm_celsius: float = described(
        "°C; alarms only together with another kind of evidence.", default=47.0, minimum=-40, maximum=300
    )
    alarm_celsius: float = described("°C.", default=57.0, minimum=-40, maximum=300)
    critical_celsius: float = described("°C; alarms immediately.", default=90.0, minimum=-40, maximum=300)
    rise_celsius_per_minute: float = described(
        "Rate of rise, in °C per minute, above which riseAllowanceCelsius lowers the pre-alarm and alarm thresholds.",
        default=4.0,
        minimum=0.5,
        maximum=100,
    )
    rise_allowance_celsius: float = described("°C.", default=10.0, minimum=0, maximum=50)


@dataclass(frozen=True, slots=True)
class ScaleDown(Resource):
    """How shards are removed."""

    stabilization: Duration = described(
        "Scaling down follows the highest recommendation within this window.",
        default=Duration(300 * SECOND),
        minimum=SECOND,
        maximum=HOUR,
    )


@dataclass(frozen=True, slots=True)
class Autoscaling(Resource):
    """Who decides how many shards there are."""

    RULES = (ordered("minShards", "maxShards"),)
    mode: Literal["embedded", "hpa", "keda", "none"] = described(
        "embedded: the operator; hpa, keda: they write spec.shards by embereye_fleet_required_shards; none: you do.",
        default="embedded",
    )
    observe: bool = described(
        "Report decisions without acting on them: mode embedded then scales nothing.", default=False
    )
    min_shards: int = described("The fewest shards.", default=1, minimum=1, maximum=MAX_SHARDS)
    max_shards: int = described("The most shards.", default=8, minimum=1, maximum=MAX_SHARDS)
    target_utilization: float = described(
        "Share of one core that each shard should use.", default=0.7, minimum=0.1, maximum=0.95
    )
    queue_depth: int = described(
        "Items waiting per shard above which a shard is added.", default=5000, minimum=1, maximum=10_000_000
    )
    catch_up: Duration = described(
        "Time within which a backlog should be worked off.", default=Duration(MINUTE), minimum=SECOND, maximum=HOUR
    )
    scale_down: ScaleDown = described("How shards are removed.", default=ScaleDown)


@dataclass(frozen=True, slots=True)
class Toleration(Resource):
    """A toleration, as Kubernetes has it."""

    key: str = described("Taint key; empty: all.", default="", max_length=316)
    operator: Literal["Exists", "Equal"] = described("How the value is compared.", default="Equal")
    value: str = described("Taint value.", default="", max_length=63)
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = described("Empty: all effects.", default="")
    toleration_seconds: int | None = described("How long a NoExecute taint is tolerated.", default=None, minimum=0)


@dataclass(frozen=True, slots=True)
class TopologySpread(Resource):
    """How the fleet's shards are spread; the label selector is ours."""

    topology_key: str = described("Node label.", max_length=316, min_length=1)
    max_skew: int = described("Largest permitted difference in the number of pods.", default=1, minimum=1, maximum=100)
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = described(
        "What to do when the spread cannot be achieved.", default="ScheduleAnyway"
    )


@dataclass(frozen=True, slots=True)
class Resources(Resource):
    """Resource requests and limits of a shard."""

    requests: Mapping[str, Quantity] = described("For example cpu: 500m, memory: 256Mi.", default=dict, max_items=8)
    limits: Mapping[str, Quantity] = described("For example memory: 1Gi.", default=dict, max_items=8)


@dataclass(frozen=True, slots=True)
class Template(Resource):
    """Settings for every shard's pod."""

    resources: Resources = described(
        "Resource requests and limits. What is named in neither has a default: memory is requested and limited, "
        "CPU requested.",
        default=Resources,
    )
    node_selector: Mapping[str, str] = described("Node labels.", default=dict, max_items=32, item=Limit(max_length=63))
    tolerations: tuple[Toleration, ...] = described("Taints that the pods tolerate.", default=(), max_items=32)
    topology_spread: tuple[TopologySpread, ...] = described(
        "If absent, pods are spread over nodes, and over zones where nodes have any, as far as possible.",
        default=(),
        max_items=8,
    )
    priority_class_name: str = described("Priority class of the pods.", default="", max_length=253)
    image_pull_secrets: tuple[PullSecret, ...] = described(
        "Secrets with which the kubelet pulls the shards' image from its registry.", default=(), max_items=8
    )


@dataclass(frozen=True, slots=True)
class Alerts(Resource):
    """Alerts about this fleet. The rules are the release's: see its values under monitoring.rules."""

    enabled: bool = described("Whether this fleet's alert rules fire.", default=True)
    labels: Mapping[str, str] = described(
        "Not used: alerts carry namespace, kind and fleet to route by; monitoring.rules.labels adds others.",
        default=dict,
        max_items=32,
        item=Limit(max_length=200),
    )
    runbook_url: str = described(
        "Not used: the release's value monitoring.rules.runbookUrl says where runbooks are.",
        default="",
        pattern="^(https?://[!-~]+)?$",
        hint="is not a URL",
        max_length=1024,
    )


@dataclass(frozen=True, slots=True)
class Canary(Resource):
    """A synthetic fire that each shard sends through its own path; people see it as a heartbeat only."""

    interval: Duration = described(
        "Time between two synthetic fires of a shard; 0s disables them.",
        default=Duration(MINUTE),
        minimum=10 * SECOND,
        maximum=HOUR,
        off=True,
    )
    within: Duration = described(
        "Time within which the hub must raise the alarm after the fire's first sign.",
        default=Duration(10 * SECOND),
        minimum=SECOND,
        maximum=10 * MINUTE,
    )


def shard_count() -> Any:
    """The field `shards`."""
    return described(
        "How many shards share the devices. kubectl scale, HPA and KEDA write it.",
        default=1,
        minimum=1,
        maximum=MAX_SHARDS,
    )


def shard_image() -> Any:
    """The field `image`."""
    return described(
        "Image of the shards; where not given, the operator's own. Another one is rolled out shard by shard.",
        default="",
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9._:/@-]*[A-Za-z0-9])?)?$",
        hint="is not an image such as registry.example.com/embereye:1.2.3",
        max_length=512,
    )


def shard_version() -> Any:
    """The field `version`."""
    return described(
        "Tag of the operator's own image that the shards run; image goes before it.",
        default="",
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]*)?$",
        hint="is not a tag",
        max_length=128,
    )


def hub_name() -> Any:
    """The field `hub`."""
    return described(
        "Name of the hub that it reports to, of those in the release's values under hubs. Where not given: the one "
        "that is for its namespace, and without one the release's own. Another one is rolled out shard by shard.",
        default="",
        pattern=rf"^({HUB_NAME.strip('^$')})?$",
        hint="is not the name of a hub: lower-case letters, digits and '-'",
        max_length=20,
    )


def deadline(seconds: int) -> Any:
    """The field `deadline`, by default `seconds`."""
    return described(
        "Time without analysed data after which a device is dark.",
        default=Duration(seconds * SECOND),
        minimum=100 * MILLISECOND,
        maximum=HOUR,
    )


def device_list(what: str) -> Any:
    """The field with the fleet's own devices."""
    return described(f"The fleet's {what}.", default=(), list_key="id", max_items=MAX_DEVICES)


def more_devices(what: str) -> Any:
    """The field with ConfigMaps of devices."""
    return described(f"More {what}, from ConfigMaps in the fleet's namespace.", default=(), max_items=32)
