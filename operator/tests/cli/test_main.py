"""The `embereye` command: help, suggestions, completion, streams, and signals during its start."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.need import FIRST_PROCESS, PROCESS_NAMESPACE

from embereye.process.lifecycle import CheckFailedError, NotFoundError, RefusedError, UnreachableError, UserError
from embereye_cli import main as command
from embereye_cli import plugin

BEGIN = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell runs in the background
from embereye_cli import main
def load(name):
    print("loading", flush=True)
    time.sleep(60)
main.importlib.import_module = load
sys.exit(main.main(["hub"]))
"""


@pytest.mark.needs(FIRST_PROCESS)
def test_the_first_process_of_a_container_can_be_stopped_while_it_starts():
    process = subprocess.Popen([*PROCESS_NAMESPACE, sys.executable, "-c", BEGIN], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        (child,) = children(process.pid)
        os.kill(child, signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_a_command_interrupted_at_its_start_ends_without_a_traceback():
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        assert (process.wait(30), process.communicate()[1]) == (130, "")


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_command_outside_a_container_installs_no_signal_handler():
    before = signal.getsignal(signal.SIGTERM)
    assert command.main(["--version"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


MAIN = [sys.executable, "-c", "import sys; from embereye_cli.main import main; sys.exit(main())"]


@pytest.mark.parametrize(("words", "below"), [("bench", "compare"), ("hub", "restore")])
def test_a_command_with_subcommands_names_them_in_help_and_in_errors(words, below, capsys):
    with pytest.raises(SystemExit):
        command.main([words, "--help"])
    assert command.COMMANDS[words, below][1] in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit) as ended:
        command.main([words, below[:-1]])
    assert ended.value.code == 2
    assert below in capsys.readouterr().err


def test_embereye_alone_prints_help_with_every_command(capsys):
    for words in ([], ["help"], ["--help"], ["-h"]):
        assert command.main(words) == 0
        printed = capsys.readouterr().out
        assert {name for name, *_ in command.COMMANDS} <= set(printed.split())
        assert "3 unreachable, 4 refused, 5 not found" in printed


def test_every_exit_code_of_the_help_is_documented():
    page = (Path(__file__).parents[3] / "docs/reference/commands.md").read_text()
    documented = dict(re.findall(r"^\| (\d+) \| ([^:|]+?)[ :|]", page, re.MULTILINE))
    listed = re.findall(r"(\d) ([^,]+)", command.EXIT_CODES)
    assert {code for code, _ in listed} <= documented.keys()
    assert all(meaning.startswith(documented[code].split()[0]) for code, meaning in listed)
    kinds = (CheckFailedError, UserError, UnreachableError, RefusedError, NotFoundError)
    assert [kind.exit_code for kind in kinds] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("words", [["version"], ["-V"], ["--version"]])
def test_the_version_is_printed_by_a_command_and_by_options(words, capsys):
    assert command.main(words) == 0
    assert capsys.readouterr().out.startswith("embereye 0.")


def test_help_explains_one_command_without_options_for_developers(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["help", "alarms", "history"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--since" in printed
    assert "--profile" not in printed
    with pytest.raises(SystemExit):
        command.main(["plan", "--help"])
    printed = capsys.readouterr().out
    assert not {"--cpus", "--profile", "--allocations", "--log-format"} & set(printed.split())
    assert command.EXIT_CODES in " ".join(printed.split())


def exit_code(words):
    try:
        return command.main(words)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["alrms"], "alrms: there is no such command. Did you mean alarms?"),
        (["explain", "alrm"], "explain alrm: not one of alarm, device, quiet, fleet, replay. Did you mean alarm?"),
        (["explain"], "usage: embereye explain KIND"),
        (["alarms", "lst"], "Did you mean list?"),
        (["alarms", "list", "--jsn"], "--jsn: there is no such option. Did you mean --json?"),
        (
            ["alarms", "history", "--kind", "smoek"],
            "--kind: smoek: not one of heat, smoke, gas, flame. Did you mean smoke?",
        ),
        (["--jason", "alarms"], "--jason: there is no such option before a command."),
        (["alarms", "ack"], "ZONE: missing."),
        (["alarms", "silence", "hall", "--reason", "x", "--for"], "--for: its value is missing."),
        (["alarms", "silence", "hall", "--reason", "x", "--for", "-5m"], '--for: "-5m" is negative: write a duration'),
        (["alarms", "history", "--since", "-5m"], '--since: "-5m" is negative: write 5m for 5m ago'),
        (["alarms", "history", "--limit", "-5"], '--limit: "-5" is not a whole number: 1 or more'),
        (["plan", "--sensors", "1e9"], '--sensors: "1e9" is not a whole number from 0 to a billion, such as 500'),
    ],
)
def test_a_wrong_word_is_named_with_what_was_probably_meant(words, sentence, capsys):
    assert exit_code(words) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--json", "alarms", "list"], ["alarms", "--json", "list"], ["alarms", "list", "--json"]],
)
def test_json_can_be_requested_anywhere(words, monkeypatch):
    from embereye_cli.hub import alarms

    requested = []
    monkeypatch.setattr(alarms, "run", lambda arguments: requested.append(arguments.json) or 0)
    assert command.main(words) == 0
    assert requested == [True]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell, capsys):
    assert command.main(["completion", shell]) == 0
    assert "_ARGCOMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("embereye alar", {"alarms"}),
        ("embereye explain d", {"device"}),
        ("embereye alarms ac", {"ack"}),
        ("embereye alarms history --kin", {"--kind"}),
        ("embereye alarms history --kind sm", {"smoke"}),
        ("embereye hub b", {"backup"}),
    ],
)
def test_completion_offers_commands_actions_options_and_values(line, expected, tmp_path):
    environment = {
        **os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "out"), "COMP_LINE": line, "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }  # fmt: skip
    subprocess.run(MAIN, env=environment, check=False, timeout=60)
    assert {word.strip() for word in (tmp_path / "out").read_text().splitlines()} == expected


def test_options_before_a_subcommand_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["bench", "--seconds", "1", "gate"])
    assert ended.value.code == 2
    assert "options go after the command: embereye bench gate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variable", "value", "sentence"),
    [
        (["plan", "--sensors", "1"], "EMBEREYE_LOG_FORMAT", "JSON", "--log-format: JSON: not one of text, json."),
        (["operator"], "EMBEREYE_IMAGE_PULL_POLICY", "always", "--image-pull-policy: always: not one of Always, "),
    ],
)
def test_an_environment_variable_must_be_a_choice_of_its_option(words, variable, value, sentence, capsys, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("words", [["hub", "--data", "."], ["operator"]])
def test_an_unknown_log_level_is_refused(words, capsys, monkeypatch):
    monkeypatch.setenv("EMBEREYE_LOG_LEVEL", "loud")
    assert command.main(words) == 2
    assert 'EMBEREYE_LOG_LEVEL "loud" is not one of' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--target", "hall", "--target hall is not HOST:PORT"),
        ("--target", "a..b:9001", '"a..b" is not a valid host name'),
        ("--within", "nan", "--within nan is not between 0 and 86400"),
    ],
)
def test_a_self_test_with_impossible_options_declares_nothing(option, value, sentence, capsys):
    assert command.main(["self-test", "--kubeconfig", "nowhere", option, value]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("run", "words"), [(command.main, ["explain", "fleet"]), (plugin.main, ["explain"])])
def test_an_error_cannot_steer_the_terminal(run, words, capsys):
    assert run([*words, "hall", "--kubeconfig", "nowhere\x9b2J"]) == 2
    sentence = capsys.readouterr().err
    assert ("nowhere\\x9b2J" in sentence, "\x9b" in sentence) == (True, False)


@pytest.mark.parametrize("words", [["hub"], ["hub", "backup", "copy"]])
def test_an_unreadable_file_with_a_database_address_is_named(words, tmp_path):
    (tmp_path / "address").write_bytes(b"\xff")
    data = ["--data", "data"] if words == ["hub"] else []
    ended = subprocess.run(
        [*MAIN, *words, *data, "--database", "@address"], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "embereye: address: the database's address cannot be read from this file (" in ended.stderr


@pytest.mark.parametrize("closed", ["0", "1", "2"])
def test_a_closed_standard_stream_does_not_end_a_command(closed):
    words = [*MAIN, "alarms", "list", "--hub", "127.0.0.1:1", "--token", "none"]
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *words], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 3
    assert closed == "2" or "cannot reach the hub at" in ended.stderr


def test_characters_that_the_terminal_lacks_are_printed_as_codes():
    manifest = Path(__file__).parents[3] / "charts/embereye/examples/sensorfleet.yaml"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([*MAIN, "plan", manifest], check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0
    assert "\\u03bb" in ended.stdout


PLUGIN = """
import sys
from embereye_cli import plugin
async def status(_):
    print("x" * 100_000)
    return 0
plugin._status = status
sys.exit(plugin.main(["status"]))
"""


@pytest.mark.parametrize(
    "words",
    [[*MAIN, "plan", "--sensors", "10"], [*MAIN, "--version"], [sys.executable, "-c", PLUGIN]],
    ids=["a command", "its version", "the plugin"],
)
def test_a_full_disk_is_reported_in_one_sentence(words):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(words, check=False, stdout=full, stderr=subprocess.PIPE)
    assert ended.stderr == b"embereye: the output cannot be written: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["plan", "--help"],
        ["plan", "--sensors", "10"],
        ["plan", "--sensors", "10", "-o", "json"],
    ],
)
def test_a_closed_pipe_is_no_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as closed:
        ended = subprocess.run([*MAIN, *words], check=False, stdout=closed, stderr=subprocess.PIPE)
    assert ended.returncode == 0
    assert ended.stderr == b""
