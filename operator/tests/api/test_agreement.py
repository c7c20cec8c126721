"""The API server and the local validation agree on every manifest."""

import copy
from typing import Any

import pytest
from harness.servers.apiserver import ApiError, ApiServer, path_of

from embereye_operator.api.fleets import FleetError, parse_fleet

from .test_schema import camera, manifest

pytestmark = pytest.mark.apiserver


def sensors(**fields: Any) -> dict[str, Any]:
    return {"sensors": [{"id": "s-1", "zone": "hall", **fields}]}


CERTIFIED = {"clients": {"caRef": {"name": "devices"}, "field": "dns", "match": "*.devices.example.org"}}
GATEWAY = {"type": "Gateway", "advertisedHost": "{name}.x", "gateway": {"name": "edge"}}
CORNERS = [{"left": 0, "top": 0}] * 3
VALID = [
    ("SensorFleet", {}),
    ("SensorFleet", sensors()),
    ("SensorFleet", sensors(location="x" * 200)),
    ("SensorFleet", sensors(id="10.0.0.7:9001")),
    ("SensorFleet", {"deadline": None}),
    ("SensorFleet", {"deadline": "100ms", "batching": {"window": "1s"}}),
    ("SensorFleet", {"sensorsFrom": [{"configMapRef": {"name": "devices"}}]}),
    ("SensorFleet", {"thermal": {"alarmCelsius": 60.5}}),
    ("SensorFleet", {"shards": 3, "autoscaling": {"mode": "hpa", "minShards": 3, "maxShards": 3}}),
    ("SensorFleet", {"template": {"resources": {"requests": {"cpu": 1, "memory": "128Mi"}, "limits": {"cpu": "0.5"}}}}),
    ("SensorFleet", {"template": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}}}),
    ("SensorFleet", {"alerts": {"labels": {"team": "safety"}, "runbookUrl": "https://example.com/r"}}),
    ("SensorFleet", {"canary": {"interval": "0s"}}),
    ("SensorFleet", {"access": {"open": True, "tls": {"names": ["fire.example.com", "10.0.0.5", "fd00::5"]}}}),
    ("SensorFleet", {"access": {"tls": CERTIFIED}, "listen": {"tls": 9002}}),
    (
        "CameraFleet",
        {
            "access": {
                "networks": ["10.0.0.0/8", "255.255.255.255/32", "fd00::/8"],
                "tls": {"secretRef": {"name": "yard-tls"}},
            }
        },
    ),
    ("SensorFleet", {"expose": {}}),
    ("SensorFleet", {"expose": {"type": "NodePort", "advertisedHost": "10.0.0.1", "ports": {"tcp": 30901}}}),
    ("SensorFleet", {"expose": {"type": "NodePort", "advertisedHost": "fd00::1", "annotations": {"a/b": "c"}}}),
    ("CameraFleet", {"expose": {"type": "LoadBalancer", "loadBalancerClass": "example.com/internal"}}),
    ("CameraFleet", {"expose": {"type": "LoadBalancer", "advertisedHost": "{name}.fire.example.com"}}),
    ("SensorFleet", {"expose": {"type": "Gateway", "advertisedHost": "{name}.x", "gateway": {"name": "edge"}}}),
    ("SensorFleet", {"canary": {"interval": "10s", "within": "1s"}}),
    ("CameraFleet", {"cameras": [camera()]}),
    ("CameraFleet", {"canary": {"interval": "1h"}}),
    ("CameraFleet", {"cameras": [camera(source="push"), camera(id="c-2", source="file:///clips/a.mp4")]}),
    ("CameraFleet", {"cameras": [camera(fps={"target": 10}), camera(id="c-2", fps={"min": 2, "target": 2})]}),
    ("CameraFleet", {"cameras": [camera(credentialsRef={"name": "lobby"}, detectors=["smoke", "heat"])]}),
    ("CameraFleet", {"evidence": {"retention": "30d", "before": "1s"}}),
    ("CameraFleet", {"cameras": [camera(masks=[{"points": [{"left": 0, "top": 0}] * 3}])]}),
    ("CameraFleet", {"cameras": [camera(privacyMasks=[{"points": CORNERS}])]}),
    (
        "CameraFleet",
        {
            "detection": {
                "candidate": {"model": {"path": "a", "decoder": "yolov8", "classes": [{"index": 0, "kind": "flame"}]}}
            }
        },
    ),
    ("CameraFleet", {"cameras": [camera(areas=[{"name": "belt 2", "points": CORNERS, "limit": 80}])]}),
    ("SensorFleet", sensors(areas=[{"name": "pile", "points": CORNERS, "kind": "rise", "limit": 4.5}])),
]
FLAME = [{"index": 0, "kind": "flame"}]
INVALID = [
    ("SensorFleet", sensors(areas=[{"name": "belt", "points": CORNERS}]), "spec.sensors[0].areas[0].limit"),
    ("SensorFleet", sensors(areas=[{"name": " ", "points": CORNERS, "limit": 8}]), "spec.sensors[0].areas[0].name"),
    ("SensorFleet", sensors(areas=[{"name": "belt", "points": CORNERS, "limit": 80}] * 2),
     "spec.sensors[0].areas[1]"),
    ("SensorFleet", {"deadline": "5"}, "spec.deadline"),
    ("SensorFleet", {"deadline": "5s\n"}, "spec.deadline"),
    ("SensorFleet", {"deadline": "99ms"}, "spec.deadline"),
    ("SensorFleet", {"deadline": "2h"}, "spec.deadline"),
    ("SensorFleet", {"deadline": 5}, "spec.deadline"),
    ("SensorFleet", {"deadline": "0s"}, "spec.deadline"),
    ("SensorFleet", {"canary": {"interval": "9s"}}, "spec.canary.interval"),
    ("SensorFleet", {"canary": {"interval": "0m"}}, "spec.canary.interval"),
    ("CameraFleet", {"canary": {"within": "0s"}}, "spec.canary.within"),
    ("SensorFleet", sensors(id="_canary_1"), "spec.sensors[0].id"),
    ("SensorFleet", {"batching": {"window": "2s"}}, "spec.batching.window"),
    ("SensorFleet", {"batching": {"maxItems": 0}}, "spec.batching.maxItems"),
    ("SensorFleet", {"shards": 0}, "spec.shards"),
    ("SensorFleet", {"shards": 129}, "spec.shards"),
    ("SensorFleet", {"shards": 1.5}, "spec.shards"),
    ("SensorFleet", {"shards": True}, "spec.shards"),
    ("SensorFleet", {"paused": "yes"}, "spec.paused"),
    ("SensorFleet", {"queue": {"overflow": "dropNewest"}}, "spec.queue.overflow"),
    ("SensorFleet", {"queue": {"capacity": 1}}, "spec.queue.capacity"),
    ("SensorFleet", {"access": {"networks": ["300.1.1.1/8"]}}, "spec.access.networks[0]"),
    ("SensorFleet", {"access": {}}, "spec.access"),
    ("SensorFleet", {"access": {"tls": {}}}, "spec.access"),
    ("SensorFleet", {"access": {"open": True, "tls": CERTIFIED}}, "spec.access"),
    ("SensorFleet", {"access": {"open": True, "tls": {"names": ["hub.embereye.internal"]}}}, "spec.access.tls.names"),
    ("SensorFleet", {"access": {"open": True, "tls": {"names": ["embereye-hub.site.svc"]}}}, "spec.access.tls.names"),
    ("SensorFleet", {"access": {"open": True, "tls": {"names": ["a"], "secretRef": {"name": "t"}}}}, "spec.access.tls"),
    ("SensorFleet", {"access": {"tls": {"clients": {"caRef": {"name": "d"}, "match": "x"}}}}, "spec.access.tls"),
    ("SensorFleet", {"listen": {"tls": 9002}}, "spec.listen.tls"),
    ("SensorFleet", {"listen": {"tls": 9001}, "access": {"tls": CERTIFIED}}, "spec.listen.tls"),
    ("CameraFleet", {"access": {"tls": CERTIFIED}, "expose": GATEWAY}, "spec.expose.type"),
    ("SensorFleet", {"expose": {"type": "Ingress"}}, "spec.expose.type"),
    ("SensorFleet", {"expose": {"type": "NodePort"}}, "spec.expose.advertisedHost"),
    ("SensorFleet", {"expose": {"advertisedHost": "a b"}}, "spec.expose.advertisedHost"),
    ("SensorFleet", {"expose": {"type": "LoadBalancer", "advertisedHost": "x.y"}}, "spec.expose.advertisedHost"),
    ("SensorFleet", {"expose": {"type": "Gateway", "advertisedHost": "{name}.x"}}, "spec.expose.gateway"),
    ("SensorFleet", {"expose": {"type": "Gateway", "gateway": {"name": "edge"}}}, "spec.expose.advertisedHost"),
    ("SensorFleet", {"expose": {"gateway": {"name": "edge"}}}, "spec.expose.gateway"),
    ("SensorFleet", {"expose": {"loadBalancerClass": "x"}}, "spec.expose.loadBalancerClass"),
    ("SensorFleet", {"expose": {"ports": {"grpc": 0}}}, "spec.expose.ports.grpc"),
    ("SensorFleet", {"expose": {"externalTrafficPolicy": "local"}}, "spec.expose.externalTrafficPolicy"),
    ("SensorFleet", {"sensors": {}}, "spec.sensors"),
    ("SensorFleet", {"sensors": [{"id": "s-1"}]}, "spec.sensors[0].zone"),
    ("SensorFleet", {"sensors": [{"zone": "hall"}]}, "spec.sensors[0].id"),
    ("SensorFleet", {"sensors": [sensors()["sensors"][0]] * 2}, "spec.sensors[1]"),
    ("SensorFleet", sensors(id="s 1"), "spec.sensors[0].id"),
    ("SensorFleet", sensors(id="s-1\n"), "spec.sensors[0].id"),
    ("SensorFleet", sensors(id="x" * 64), "spec.sensors[0].id"),
    ("SensorFleet", sensors(zone=""), "spec.sensors[0].zone"),
    ("SensorFleet", sensors(location="x" * 201), "spec.sensors[0].location"),
    ("SensorFleet", {"listen": {"tcp": 80}}, "spec.listen.tcp"),
    ("SensorFleet", {"listen": {"tcp": 9100}}, "spec.listen.tcp"),
    ("SensorFleet", {"listen": {"grpc": 9100}}, "spec.listen.grpc"),
    ("SensorFleet", {"listen": {"tcp": 7000, "grpc": 7000}}, "spec.listen.tcp"),
    ("SensorFleet", {"thermal": {"alarmCelsius": 46}}, "spec.thermal.preAlarmCelsius"),
    ("SensorFleet", {"thermal": {"alarmCelsius": 95}}, "spec.thermal.alarmCelsius"),
    ("SensorFleet", {"thermal": {"emissivity": 1.1}}, "spec.thermal.emissivity"),
    ("SensorFleet", {"gas": {"preAlarmPpm": 6000}}, "spec.gas.preAlarmPpm"),
    ("SensorFleet", {"smoke": {"alarmPercent": 10}}, "spec.smoke.preAlarmPercent"),
    ("SensorFleet", {"flame": {"preAlarmPercent": 101}}, "spec.flame.preAlarmPercent"),
    ("SensorFleet", {"autoscaling": {"minShards": 9}}, "spec.autoscaling.minShards"),
    ("SensorFleet", {"autoscaling": {"mode": "magic"}}, "spec.autoscaling.mode"),
    ("SensorFleet", {"autoscaling": {"scaleDown": {"stabilization": "1d"}}},
     "spec.autoscaling.scaleDown.stabilization"),
    ("SensorFleet", {"sensorsFrom": [{}]}, "spec.sensorsFrom[0].configMapRef"),
    ("SensorFleet", {"template": {"resources": {"limits": {"cpu": "x"}}}}, "spec.template.resources.limits.cpu"),
    ("SensorFleet", {"alerts": {"runbookUrl": "wiki"}}, "spec.alerts.runbookUrl"),
    ("CameraFleet", {"cameras": [camera(source="rtps://10.0.0.1/")]}, "spec.cameras[0].source"),
    ("CameraFleet", {"cameras": [camera(source="rtsp://a b")]}, "spec.cameras[0].source"),
    ("CameraFleet", {"cameras": [camera(fps={"min": 9, "target": 8})]}, "spec.cameras[0].fps.min"),
    ("CameraFleet", {"cameras": [camera(detectors=["smoke", "smoke"])]}, "spec.cameras[0].detectors[1]"),
    ("CameraFleet", {"cameras": [camera(detectors=["smell"])]}, "spec.cameras[0].detectors[0]"),
    ("CameraFleet", {"cameras": [camera(masks=[{"points": [{"left": 0, "top": 0}]}])]},
     "spec.cameras[0].masks[0].points"),
    ("CameraFleet", {"cameras": [camera(masks=[{"points": [{"left": 2, "top": 0}] * 3}])]},
     "spec.cameras[0].masks[0].points[0].left"),
    ("CameraFleet", {"detection": {"detectors": []}}, "spec.detection.detectors"),
    ("CameraFleet", {"detection": {"flame": {"threshold": 1.2}}}, "spec.detection.flame.threshold"),
    ("CameraFleet", {"fps": {"target": 3}}, "spec.fps.min"),
    ("CameraFleet", {"evidence": {"retention": "10s"}}, "spec.evidence.retention"),
    ("CameraFleet", {"evidence": {"before": "3m"}}, "spec.evidence.before"),
    ("CameraFleet", {"detection": {"candidate": {"version": "1.2.0"}}}, "spec.detection.candidate.version"),
    ("SensorFleet", {"detection": {"candidate": {"version": "1.2.0"}}}, "spec.detection.candidate.version"),
    ("CameraFleet", {"detection": {"candidate": {"model": {"decoder": "yolov8", "classes": FLAME}}}},
     "spec.detection.candidate.model"),
]  # fmt: skip


def dry_run(cluster: ApiServer, document: dict[str, Any]) -> Any:
    return cluster.request("POST", f"{path_of(document, name=False)}?dryRun=All", document)


@pytest.mark.parametrize(("kind", "spec"), VALID, ids=range(len(VALID)))
def test_both_accept_a_good_manifest_with_the_same_defaults(cluster: ApiServer, kind: str, spec: Any) -> None:
    document = manifest(kind, spec)
    local = parse_fleet(copy.deepcopy(document))
    assert dry_run(cluster, document)["spec"] == local.manifest["spec"]


@pytest.mark.parametrize(("kind", "spec", "field"), INVALID, ids=[f"{i}-{row[2]}" for i, row in enumerate(INVALID)])
def test_both_refuse_a_bad_manifest_and_name_the_field(cluster: ApiServer, kind: str, spec: Any, field: str) -> None:
    document = manifest(kind, spec)
    with pytest.raises(FleetError) as local:
        parse_fleet(copy.deepcopy(document))
    assert field in str(local.value)
    with pytest.raises(ApiError) as remote:
        dry_run(cluster, document)
    assert remote.value.code == 422
    assert field in remote.value.message


@pytest.mark.parametrize("name", ["a" * 41, "hall.one", "1hall"])
def test_both_refuse_a_name_that_is_too_long_for_children(cluster: ApiServer, name: str) -> None:
    document = manifest(name=name)
    with pytest.raises(FleetError, match=r"metadata\.name must be at most 40"):
        parse_fleet(document)
    with pytest.raises(ApiError, match=r"metadata\.name must be at most 40"):
        dry_run(cluster, document)


def test_both_refuse_a_manifest_without_a_spec(cluster: ApiServer) -> None:
    document = manifest()
    del document["spec"]
    with pytest.raises(FleetError, match="spec: is required"):
        parse_fleet(document)
    with pytest.raises(ApiError, match="spec: Required"):
        dry_run(cluster, document)


def test_both_refuse_a_changed_listen_port(cluster: ApiServer, namespace: str) -> None:
    before = manifest(spec={"listen": {"tcp": 9002}}, namespace=namespace)
    cluster.request("POST", path_of(before, name=False), before)
    with pytest.raises(ApiError, match=r"spec\.listen\.tcp.*cannot be changed"):
        cluster.merge(path_of(before), {"spec": {"listen": None}})
    with pytest.raises(FleetError, match=r"spec\.listen\.tcp.*cannot be changed"):
        parse_fleet(manifest(namespace=namespace), old=before)


def test_an_unknown_field_is_refused_locally_and_dropped_by_the_server(cluster: ApiServer) -> None:
    document = manifest(spec={"sensor": []})
    with pytest.raises(FleetError, match=r"spec\.sensor: there is no such field"):
        parse_fleet(document)
    assert "sensor" not in dry_run(cluster, document)["spec"]
