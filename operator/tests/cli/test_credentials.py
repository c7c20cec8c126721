"""`embereye credentials set` stores a login where `embereye up` finds it, and prints no password."""

import base64
import io
import os
import stat
import subprocess

import pytest
from harness.need import KUBECTL, program

from embereye_cli.main import main


@pytest.fixture
def typed(monkeypatch):
    def type_in(text):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    return type_in


def test_a_login_is_stored_for_this_user_alone(typed, tmp_path, capsys):
    typed("p@ss/w#rd\n")
    assert main(["credentials", "set", "gate", "--user", "viewer", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "gate" / "username").read_text() == "viewer"
    password = tmp_path / "gate" / "password"
    assert password.read_text() == "p@ss/w#rd"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert "p@ss" not in capsys.readouterr().out
    typed("viewer2\nnew\n")
    assert main(["credentials", "set", "gate", "--folder", str(tmp_path)]) == 0
    assert ((tmp_path / "gate" / "username").read_text(), password.read_text()) == ("viewer2", "new")


def test_the_next_password_is_beside_the_present_one_until_it_replaces_it(typed, tmp_path, capsys):
    folder, options = tmp_path / "gate", ["gate", "-u", "me", "--folder", str(tmp_path)]
    typed("new\n")
    assert main(["credentials", "set", *options, "--next"]) == 2
    assert "store it without --next" in capsys.readouterr().err
    typed("old\n")
    assert main(["credentials", "set", *options]) == 0
    typed("new\n")
    assert main(["credentials", "set", *options, "--next"]) == 0
    assert "store it again without --next" in capsys.readouterr().out
    assert [(folder / name).read_text() for name in ("password", "password-next")] == ["old", "new"]
    typed("new\n")
    assert main(["credentials", "set", *options]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["password", "username"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_login_that_root_stores_belongs_to_the_owner_of_the_folder(typed, tmp_path):
    os.chown(tmp_path, 12345, 12346)
    typed("old\n")
    assert main(["credentials", "set", "gate", "-u", "me", "--folder", str(tmp_path / "credentials")]) == 0
    typed("new\n")
    assert main(["credentials", "set", "gate", "-u", "me", "--next", "--folder", str(tmp_path / "credentials")]) == 0
    gate = tmp_path / "credentials" / "gate"
    for path in (gate.parent, gate, *gate.iterdir()):
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346), path


def test_the_commands_for_a_cluster_are_printed(capsys):
    assert main(["credentials", "set", "gate", "-u", "a b", "-n", "site", "--kubectl"]) == 0
    printed = capsys.readouterr().out
    assert "kubectl --namespace site create secret generic gate --from-literal=username='a b'" in printed
    assert "embereye.dev/allow-fleet-use=true" in printed
    assert main(["credentials", "set", "gate", "-u", "a", "--kubectl", "--next"]) == 0
    printed = capsys.readouterr().out
    assert "--from-file=password-next=/dev/stdin" in printed  # so it is in no history of a shell
    assert "create" in printed.partition("get secret gate --output=name && ")[2]


@pytest.mark.apiserver
@pytest.mark.needs(KUBECTL)
def test_the_printed_commands_store_change_and_replace_a_login_in_a_cluster(cluster, namespace, capsys):
    path = f"{program('kubectl').parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}

    def type_printed(password, *options):
        assert main(["credentials", "set", "gate", "-u", "me", "-n", namespace, "--kubectl", *options]) == 0
        typed = capsys.readouterr().out
        subprocess.run(["sh", "-e", "-c", typed], env=environment, input=password, text=True, check=True, timeout=60)
        secret = cluster.request("GET", f"/api/v1/namespaces/{namespace}/secrets/gate")
        assert secret["metadata"]["labels"] == {"embereye.dev/allow-fleet-use": "true"}
        return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}

    assert type_printed("old") == {"username": "me", "password": "old"}
    both = {"username": "me", "password": "old", "username-next": "me", "password-next": 'n"e\\w'}
    assert type_printed('n"e\\w', "--next") == both
    assert type_printed('n"e\\w') == {"username": "me", "password": 'n"e\\w'}


@pytest.mark.parametrize(
    ("arguments", "text", "reason"),
    [
        (["Gate"], "x\ny\n", "is not a name"),
        (["gate"], "viewer\n", "the password is missing"),
        (["gate"], "", "the user is missing"),
        (["gate"], "viewer\na\tb\n", "control characters"),
    ],
)
def test_a_login_that_cannot_be_used_is_refused(typed, tmp_path, capsys, arguments, text, reason):
    typed(text)
    assert main(["credentials", "set", *arguments, "--folder", str(tmp_path)]) == 2
    assert reason in capsys.readouterr().err
