"""A PostgreSQL of Debian's in a pod, with its files on the release's volume.

`install_postgres` builds the image, starts the pod on the node that no fault takes, and creates an empty database. The
pod can be crashed and started again on the same files.
"""

import base64
import secrets

from harness.cluster.cluster import Cluster, Json, script, until
from harness.cluster.site import REQUESTS, SYSTEM, VOLUME

NAME = "database"  # of its objects
USER = 999  # user id of the image
READY_SECONDS = 120.0
# A first start creates the cluster. Inside the pod, connections need no password.
START = (
    "test -s /data/files/PG_VERSION || { "
    "initdb --pgdata /data/files --username embereye --pwfile /secret/password --auth-local trust "
    "--auth-host scram-sha-256 --encoding UTF8 --locale C.UTF-8 && "
    "echo 'host all all all scram-sha-256' >>/data/files/pg_hba.conf; } && "
    "exec postgres -D /data/files -c listen_addresses=* -c unix_socket_directories=/tmp -c shared_buffers=16MB "
    "-c max_connections=40"
)
PSQL = ("psql", "--host", "/tmp", "--username", "embereye", "--no-psqlrc", "--tuples-only", "--no-align")


class PostgresPod:
    """A PostgreSQL in a pod that can be crashed, and started again on the same data."""

    def __init__(self, cluster: Cluster, node: str, database: str) -> None:
        """`node` has the release's volume. `database` is the name of its only database."""
        self._cluster, self._node, self._database = cluster, node, database
        self._password = secrets.token_urlsafe(16)

    @property
    def address(self) -> str:
        """The connection string of the database, for pods."""
        return f"postgresql://embereye:{self._password}@{NAME}.{SYSTEM}.svc:5432/{self._database}"

    async def create(self) -> None:
        """Start the pod for the first time, and create the database."""
        await self._cluster.apply(*_manifests(self._node, self._password))
        await self._wait_until_ready()
        await self.execute(f'CREATE DATABASE "{self._database}"', database="postgres")

    async def stop(self) -> None:
        """Crash it: all its processes and connections end at once."""
        (pod,) = await self._pods()
        await self._cluster.kubectl("scale", *_DEPLOYMENT, "--replicas=0")
        await self._cluster.kill_container(pod)
        await until(self._pods, lambda pods: not pods, "the pod of PostgreSQL is gone", READY_SECONDS)

    async def start(self) -> None:
        """Start it again. Returns when it answers."""
        await self._cluster.kubectl("scale", *_DEPLOYMENT, "--replicas=1")
        await self._wait_until_ready()

    async def break_connections(self) -> None:
        """End every session in the database, as an administrator does."""
        where = f"datname = '{self._database}' AND pid <> pg_backend_pid()"
        await self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {where}", database="postgres")

    async def size_mb(self) -> float:
        """The size of the database in MB. Raises CommandError while it is away."""
        return int(await self.execute(f"SELECT pg_database_size('{self._database}')", database="postgres")) / 1e6

    async def execute(self, statement: str, *, database: str) -> str:
        """Run a statement as its owner and return its rows as text. Raises CommandError."""
        place = ("exec", "--namespace", SYSTEM, f"deployment/{NAME}", "--")
        return await self._cluster.kubectl(*place, *PSQL, "--dbname", database, "--command", statement, limit=20)

    async def _pods(self) -> list[Json]:
        return await self._cluster.items("pods", "--namespace", SYSTEM, "--selector", f"e2e={NAME}")

    async def _wait_until_ready(self) -> None:
        seconds = f"--timeout={READY_SECONDS:g}s"
        await self._cluster.kubectl("rollout", "status", *_DEPLOYMENT, seconds, limit=READY_SECONDS + 5)


_DEPLOYMENT = (f"deployment/{NAME}", "--namespace", SYSTEM)


async def install_postgres(cluster: Cluster, node: str, database: str) -> PostgresPod:
    """Run a PostgreSQL on `node` with one empty database. Returns when it answers."""
    await script("load", await script("postgres-image"))
    postgres = PostgresPod(cluster, node, database)
    await postgres.create()
    return postgres


def _manifests(node: str, password: str) -> list[Json]:
    metadata = {"name": NAME, "namespace": SYSTEM}
    labels = {"e2e": NAME}
    container = {
        "name": "postgres", "image": "e2e-postgres:latest", "imagePullPolicy": "Never",
        "command": ["sh", "-c", START],
        "ports": [{"name": "postgres", "containerPort": 5432}],
        "startupProbe": {
            "exec": {"command": ["pg_isready", "--host", "/tmp", "--username", "embereye"]}, "periodSeconds": 1,
            "failureThreshold": int(READY_SECONDS),
        },
        # Starts no program in the container each second.
        "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
        "resources": {"requests": REQUESTS},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"},
            {"name": "secret", "mountPath": "/secret"},
        ],
    }  # fmt: skip
    pod = {
        "automountServiceAccountToken": False, "enableServiceLinks": False,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",  # PostgreSQL refuses files that a group may change
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": NAME}}, {"name": "tmp", "emptyDir": {}},
            {"name": "secret", "secret": {"secretName": f"{NAME}-password"}},
        ],
    }  # fmt: skip
    return [
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": f"{NAME}-password"},
            "data": {"password": base64.b64encode(password.encode()).decode()},
        },
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": VOLUME,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"name": "postgres", "port": 5432}]},
        },
    ]  # fmt: skip
