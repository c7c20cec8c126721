"""notify.yaml: what it may say, and what is wrong with it."""

from datetime import datetime
from pathlib import Path

import pytest

from embereye.addons.notify.config import parse_config
from embereye.addons.notify.options import ALARM, CRITICAL, FAULT
from embereye.process.fields import DeclaredError

FULL = """
publicUrl: https://fire.example.com/
timeZone: Europe/Berlin
fold: 5s
linkLife: 12h
routes:
  - name: phone
    urlFile: secrets/phone
    canary: {every: 24h, within: 1h}
    quiet:
      - {days: [mon-fri], from: "22:00", to: "06:00"}
  - {name: chief, url: "ntfys://chief-topic", acknowledge: false}
  - {name: mail, url: "mailtos://u:p@example.com", allow: [10.0.0.0/8], timeout: 20s, giveUpAfter: 2h}
duty:
  - name: watch
    shifts:
      - {days: [mon-fri], from: "06:00", to: "18:00", routes: [phone]}
      - {days: [fri-mon], from: "18:00", to: "06:00", routes: [chief]}
    otherwise: [mail]
escalations:
  - name: fire
    for: [alarm]
    zones: ["*", "!kitchen"]
    steps:
      - {routes: [watch]}
      - {after: 2m, routes: [chief, mail]}
    repeat: {every: 10m, times: 3}
  - {name: faults, for: fault, steps: [{after: 5m, routes: mail}], followUp: false}
"""


def test_everything_that_the_file_says_is_read() -> None:
    options = parse_config(FULL, Path("/etc/notify"))
    assert options.public_url == "https://fire.example.com"
    assert list(options.routes) == ["phone", "chief", "mail"]
    assert options.routes["phone"].url_file == Path("/etc/notify/secrets/phone")
    fire, faults = options.escalations
    assert [step.after for step in fire.steps] == [0, 120]
    assert (fire.repeat, fire.rounds, faults.rounds, faults.follow_up) == (600, 4, 1, False)
    assert fire.is_for(CRITICAL, "default", "hall")
    assert fire.is_for(ALARM, "default", "hall")
    assert not fire.is_for(ALARM, "default", "kitchen")
    assert not fire.is_for(FAULT, "default", "hall")


def test_a_route_can_be_for_some_zones() -> None:
    text = "routes: [{name: a, url: 'ntfys://a', zones: [hall/kitchen, 'hall/sensors/*']}, {name: b, url: 'ntfys://b'}]"
    options = parse_config(text)
    assert options.routes["a"].scope.patterns == ("hall/kitchen", "hall/sensors/*")
    assert options.is_for("a", "hall", "kitchen")
    assert not options.is_for("a", "hall", "attic")
    assert options.is_for("b", "hall", "attic")
    for zones, why in (("[]", "it is empty"), ("kitchen", "is not of the form NAMESPACE/ZONE"), ("3", "is not a list")):
        with pytest.raises(DeclaredError, match=why):
            parse_config(f"routes: [{{name: a, url: 'ntfys://a', zones: {zones}}}]")


def test_times_of_day_need_no_quotes() -> None:
    quoted, bare = (parse_config(text) for text in (FULL, FULL.replace('"22:00"', "22:00").replace('"18:00"', "18:00")))
    assert bare.routes["phone"].quiet == quoted.routes["phone"].quiet
    assert bare.duties == quoted.duties


def test_who_is_on_duty_depends_on_weekday_and_hour() -> None:
    options = parse_config(FULL)
    duty = options.duties["watch"]
    friday, saturday, sunday = (datetime(2026, 11, day) for day in (27, 28, 29))
    assert duty.routes(friday.replace(hour=7)) == ("phone",)
    assert duty.routes(friday.replace(hour=23)) == ("chief",)
    assert duty.routes(saturday.replace(hour=5)) == ("chief",), "Friday's night ends on Saturday"
    assert duty.routes(sunday.replace(hour=12)) == ("mail",), "nobody has a shift"
    monday_night = datetime(2026, 11, 24, 3)
    assert options.expand(["watch", "mail", "chief"], monday_night) == ("chief", "mail")


def test_a_file_with_nothing_but_routes_tells_them_everything() -> None:
    options = parse_config('routes: [{name: phone, url: "ntfys://topic"}]')
    assert {occasion for escalation in options.escalations for occasion in escalation.occasions} == {
        "alarm", "pre-alarm", "fault",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (("name: chief,", "nam: chief,"), "line 12: routes[1].name is missing. nam is not a field"),
        (("routes: [chief, mail]", "routes: [boss]"), 'line 26: escalations[0].steps[1].routes[0]: "boss" is no route'),
        (("after: 2m", "after: soon"), 'line 26: escalations[0].steps[1].after: "soon" is not a duration. Use'),
        (("for: [alarm]", "for: [fire]"), 'line 22: escalations[0].for[0]: "fire" is not one of pre-alarm, alarm'),
        (("otherwise: [mail]", ""), "line 15: duty[0]: nobody is on duty on tue at 18:00. Add a shift, or otherwise"),
        (("Europe/Berlin", "Europe/Berlim"), 'line 3: timeZone: "Europe/Berlim" is not a time zone such as'),
        (("name: mail,", "name: phone,"), 'line 13: routes[2]: the name "phone" is declared twice'),
        (("  - {name: chief", "  - {name: chief, name: c"), 'line 12: the key "name" is repeated: remove one'),
        (("for: [alarm]", "for: [pre-alarm]"), "escalations: none of them is for alarm"),
        (
            ('to: "06:00"}', 'to: "06:00", alarmsToo: {reason: " ", by: ada}}'),
            "it is empty. Alarms wait only if",
        ),
        (("[10.0.0.0/8]", "[10.0.0.1/8]"), 'routes[2].allow[0]: "10.0.0.1/8" is not a network'),
        (("ntfys://chief-topic", "dbus://"), "routes[1].url: dbus:// shows messages on the hub's machine only"),
        (("fold: 5s", "fold: [5s"), "not YAML: line 5"),
    ],
)
def test_a_mistake_is_named_with_line_key_and_remedy(changed: tuple[str, str], sentence: str) -> None:
    assert changed[0] in FULL
    with pytest.raises(DeclaredError) as error:
        parse_config(FULL.replace(*changed, 1))
    assert sentence in str(error.value)


def test_no_secret_of_an_address_is_in_a_message() -> None:
    with pytest.raises(DeclaredError) as error:
        parse_config('routes: [{name: phone, url: "very-secret-token"}]')
    assert "secret" not in str(error.value)
