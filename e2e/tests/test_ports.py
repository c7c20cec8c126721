"""The ports that pods have, and those that the documents list."""

from harness.cluster.ports import documented_ports, listening_ports, node_ports_of

# The head of /proc/net/tcp, and sockets: listening on every address, on loopback, and connected.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65532        0 1 1 0 100 0 0 10 0
   1: 0100007F:C385 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65532        0 2 1 0 100 0 0 10 0
   2: 0201F40A:1F90 0501F40A:A2B4 01 00000000:00000000 00:00000000 00000000 65532        0 3 1 0 100 0 0 10 0
  sl  local_address                         remote_address                        st tx_queue
   0: 00000000000000000000000000000000:C387 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 00000000000000000000000001000000:2710 00000000000000000000000000000000:0000 0A 00000000:00000000
"""


def test_ports_that_listen_beyond_loopback_are_found() -> None:
    assert listening_ports(TABLE) == {8080, 50055}


def test_the_page_lists_the_ports_of_hub_operator_and_shards() -> None:
    ports = documented_ports()
    assert {pod: set(known) for pod, known in ports.items()} == {
        "hub": {8080, 9100, 50052, 50053}, "operator": {8081}, "shard": {9100, 50051, 50055}
    }  # fmt: skip
    assert ports["shard"][50051] == "everybody"


def test_a_node_port_leads_to_the_port_of_the_pod_that_its_service_selects() -> None:
    def pod(app: str) -> dict[str, object]:
        return {
            "metadata": {"labels": {"app": app, "part-of": "embereye"}},
            "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
        }

    ports = [{"port": 80, "targetPort": "http", "nodePort": 30080}, {"port": 81, "targetPort": "http"}]
    service = {"spec": {"selector": {"app": "hub"}, "ports": ports}}
    assert node_ports_of(service, {"hub": pod("hub"), "shard": pod("shard")}) == {30080: "hub:8080"}
