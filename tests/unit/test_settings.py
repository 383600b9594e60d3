from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import ConfigurationError
from fencepost.settings import LONGEST_DURATION, Settings, duration, redacted
from fencepost.settings.values import PARSERS, shown


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def load(directory, env=None, **overrides):
    return Settings.load(env=env or {}, directory=directory, **overrides)


# Durations


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (30, seconds(30)),
        (0, seconds(0)),
        (1.5, seconds(1.5)),
        ("30", seconds(30)),
        ("0.25", seconds(0.25)),
        ("30s", seconds(30)),
        ("5m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("250ms", timedelta(milliseconds=250)),
        ("1h30m", timedelta(minutes=90)),
        (" 1h 30m ", timedelta(minutes=90)),
        ("1m250ms", timedelta(minutes=1, milliseconds=250)),
        (seconds(7), seconds(7)),
    ],
)
def test_a_duration_is_read(value, expected):
    assert duration(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        "-5s",
        seconds(-1),
        math.nan,
        math.inf,
        "nan",
        "inf",
        "1e3",
        "",
        "  ",
        "s",
        "5 minutes",
        "30m1h",
        "5m5m",
        "٣s",
        "1..5s",
        "five",
        True,
        None,
        [],
        b"5s",
        10**400,
        10**5000,
        1e300,
        "9" * 400,
        LONGEST_DURATION + seconds(1),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, int) else "number",
)
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ConfigurationError, match="is not a duration"):
        duration(value)


@given(st.text(max_size=20) | st.floats() | st.integers())
def test_a_duration_is_read_or_refused_and_nothing_else(value):
    with suppress(ConfigurationError):
        assert timedelta(0) <= duration(value) <= LONGEST_DURATION


@given(st.timedeltas(timedelta(0), timedelta(days=365)))
def test_a_duration_in_a_message_can_be_copied_back(length):
    assert duration(shown(length)) == length


# Defaults, limits and relations


def test_the_defaults():
    settings = Settings()
    assert settings.namespace == "default"
    assert settings.execute_on == "any"
    assert settings.leader_ttl == settings.run_ttl == seconds(30)
    assert settings.heartbeat == seconds(10)
    assert settings.slots == 10
    assert (settings.host, settings.port) == ("127.0.0.1", 8787)
    assert settings.retention == timedelta(days=30)
    assert (settings.store, settings.auth_token, settings.revision) == (None, None, None)
    assert settings.warnings() == []


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Settings().slots = 3  # type: ignore[misc]


def test_every_setting_has_a_parser():
    assert [field.name for field in fields(Settings)] == list(PARSERS)


@pytest.mark.parametrize(("leader_ttl", "horizon"), [(1, 60), (20, 60), (30, 90), (120, 360)])
def test_the_horizon_is_the_larger_of_a_minute_and_three_leader_ttls(leader_ttl, horizon):
    settings = Settings(leader_ttl=seconds(leader_ttl), heartbeat=seconds(0.5))
    assert settings.horizon == seconds(horizon)


@pytest.mark.parametrize("name", ["leader_ttl", "run_ttl"])
def test_a_ttl_covers_two_heartbeats(tmp_path, name):
    assert getattr(load(tmp_path, **{name: 20}), name) == seconds(20)
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, **{name: 19})
    assert str(caught.value) == (
        f"{name} (19s) must be at least twice heartbeat (10s), or one late heartbeat ends it: "
        f"raise {name} to 20s, or lower heartbeat to 9500ms"
    )


def test_the_remedy_never_suggests_a_heartbeat_that_would_be_refused():
    with pytest.raises(ConfigurationError, match="raise leader_ttl to 100ms$"):
        Settings(leader_ttl=seconds(0.08), heartbeat=seconds(0.05))


def test_the_horizon_covers_two_leader_ttls():
    assert Settings(horizon=seconds(60)).horizon == seconds(60)
    with pytest.raises(ConfigurationError, match=r"horizon \(59s\).*leader_ttl \(30s\).*raise horizon to 1m"):
        Settings(horizon=seconds(59))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("heartbeat", "49ms", r"heartbeat \(49ms\) is too short: raise it to 50ms"),
        ("run_ttl", "25h", r"run_ttl \(25h\) is too long: lower it to 1d"),
        ("retention", 0, r"retention \(0s\)"),
        ("slots", 0, "slots: 0 is not a whole number from 1 to 10000"),
        ("slots", 10_001, "from 1 to 10000"),
        ("slots", 2.5, r"2\.5 is not a whole number"),
        ("slots", True, "True is not a whole number"),
        ("slots", "1" * 5000, "not a whole number"),
        ("port", 65_536, "from 0 to 65535"),
        ("revision", "3f9c2ab", "'3f9c2ab' is not a whole number .* such as a build number"),
        ("execute_on", "a b", "is not a pool"),
        ("execute_on", [], "is not a pool"),
        ("pools", [], "is not a list of 1 to 20 pools"),
        ("pools", "default,leader", "a pool cannot be called 'leader'"),
        ("namespace", "a b", "'a b' is not a namespace"),
        ("namespace", "a" * 101, "1 to 100 letters"),
        ("namespace", "a\n", "is not a namespace"),
        ("host", " ", "host: must be text, and not empty"),
        ("drain_timeout", "soon", "drain_timeout: 'soon' is not a duration"),
    ],
)
def test_a_value_out_of_bounds_is_refused(tmp_path, name, value, message):
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, **{name: value})


def test_none_where_a_value_is_needed_is_refused():
    with pytest.raises(ConfigurationError, match="slots: None"):
        Settings(slots=None)  # type: ignore[arg-type]


def test_the_edges_are_accepted():
    Settings(heartbeat=seconds(0.05), run_ttl=timedelta(hours=24), slots=10_000, port=0, namespace="a" * 100)


def test_a_drain_longer_than_the_grace_period_is_a_warning():
    assert Settings(ready_delay=seconds(10)).warnings() == []
    (warning,) = Settings(ready_delay=seconds(11)).warnings()
    assert "ready_delay (11s)" in warning
    assert "drain_timeout (20s)" in warning
    assert "grace_period (30s)" in warning
    assert "31s" in warning


# Where values come from


def test_an_override_wins_over_the_environment_which_wins_over_the_file(tmp_path):
    (tmp_path / "fencepost.toml").write_text('slots = 2\nport = 2\nnamespace = "two"\n')
    settings = load(tmp_path, {"FENCEPOST_SLOTS": "3", "FENCEPOST_PORT": "3"}, slots=4, namespace=None)
    assert (settings.slots, settings.port, settings.namespace, settings.host) == (4, 3, "two", "127.0.0.1")


def test_every_setting_can_come_from_the_environment(tmp_path):
    env = {
        "FENCEPOST_STORE": "redis://h",
        "FENCEPOST_NAMESPACE": "n",
        "FENCEPOST_EXECUTE_ON": "leader",
        "FENCEPOST_LEADER_TTL": "1m",
        "FENCEPOST_HEARTBEAT": "5",
        "FENCEPOST_RUN_TTL": "2m",
        "FENCEPOST_HORIZON": "5m",
        "FENCEPOST_SLOTS": "3",
        "FENCEPOST_DRAIN_TIMEOUT": "1s",
        "FENCEPOST_READY_DELAY": "0",
        "FENCEPOST_GRACE_PERIOD": "1m",
        "FENCEPOST_REVISION": "17",
        "FENCEPOST_AUTH_TOKEN": "hush",
        "FENCEPOST_HOST": "::",
        "FENCEPOST_PORT": "80",
        "FENCEPOST_RETENTION": "7d",
    }
    assert load(tmp_path, env) == Settings(
        store="redis://h",
        namespace="n",
        execute_on="leader",
        leader_ttl=seconds(60),
        heartbeat=seconds(5),
        run_ttl=seconds(120),
        horizon=seconds(300),
        slots=3,
        drain_timeout=seconds(1),
        ready_delay=seconds(0),
        grace_period=seconds(60),
        revision=17,
        auth_token="hush",
        host="::",
        port=80,
        retention=timedelta(days=7),
    )


def test_the_environment_and_directory_of_the_process_are_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("FENCEPOST_SLOTS", "7")
    monkeypatch.chdir(tmp_path)
    Path("fencepost.toml").write_text("port = 9")
    assert (Settings.load().slots, Settings.load().port) == (7, 9)


def test_an_empty_variable_counts_as_not_set(tmp_path):
    assert load(tmp_path, {"FENCEPOST_STORE": "", "FENCEPOST_SLOTS": " "}) == Settings()


def test_a_wrong_variable_is_called_by_its_name(tmp_path):
    with pytest.raises(ConfigurationError, match="^FENCEPOST_LEADER_TTL: 'x' is not a duration"):
        load(tmp_path, {"FENCEPOST_LEADER_TTL": "x"})


def test_an_unknown_variable_is_warned_of_without_its_value(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        load(tmp_path, {"FENCEPOST_HEARTBEET": "hush", "FENCEPOST_TEST_POSTGRES": "x", "OTHER": "x"})
    (record,) = caplog.records
    assert "FENCEPOST_HEARTBEET is ignored; did you mean 'FENCEPOST_HEARTBEAT'?" in record.getMessage()
    assert "hush" not in record.getMessage()


def test_the_variables_kubernetes_sets_for_a_service_named_fencepost_are_not_settings(tmp_path, caplog):
    links = {
        "FENCEPOST_PORT": "tcp://10.0.0.7:8787",
        "FENCEPOST_PORT_8787_TCP": "tcp://10.0.0.7:8787",
        "FENCEPOST_PORT_8787_TCP_ADDR": "10.0.0.7",
        "FENCEPOST_SERVICE_HOST": "10.0.0.7",
        "FENCEPOST_SERVICE_PORT_HTTP": "8787",
        "FENCEPOST_STORE_PORT": "tcp://10.0.0.8:6379",
    }
    assert load(tmp_path, links) == Settings()
    assert not caplog.records


@pytest.mark.parametrize("name", ["store", "auth_token"])
def test_a_secret_can_come_from_a_file(tmp_path, name):
    (tmp_path / "secret").write_text("redis://hush\n")
    variable = f"FENCEPOST_{name.upper()}"
    env = {f"{variable}_FILE": str(tmp_path / "secret")}
    assert getattr(load(tmp_path, env), name) == "redis://hush"
    assert getattr(load(tmp_path, env, **{name: "redis://mine"}), name) == "redis://mine"
    with pytest.raises(ConfigurationError, match=f"both {variable} and {variable}_FILE"):
        load(tmp_path, env | {variable: "other"})


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read .*No such file"), (b"", "not empty"), (b"\xff\xfe", "not UTF-8")],
)
def test_a_secret_file_that_cannot_be_used_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"FENCEPOST_STORE_FILE: .*{message}"):
        load(tmp_path, {"FENCEPOST_STORE_FILE": str(tmp_path / "secret")})


def test_a_secret_in_the_variable_meant_for_its_file_is_not_shown(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {"FENCEPOST_AUTH_TOKEN_FILE": "hush"})
    assert "hush" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "fencepost.toml").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot read .*fencepost\.toml"):
        load(tmp_path)


def test_settings_in_pyproject(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.fencepost]\nleader_ttl = 40\nheartbeat = "5s"\n')
    assert load(tmp_path) == Settings(leader_ttl=seconds(40), heartbeat=seconds(5))
    (tmp_path / "fencepost.toml").write_text("slots = 3")
    assert load(tmp_path) == Settings(slots=3)


@pytest.mark.parametrize("content", ["", "[project]\nname = 'x'", "[tool.ruff]\nx = 1"])
def test_a_pyproject_without_our_table(tmp_path, content):
    (tmp_path / "pyproject.toml").write_text(content)
    assert load(tmp_path) == Settings()


def test_the_tables_of_jobs_and_tasks_are_left_alone(tmp_path):
    (tmp_path / "fencepost.toml").write_text(
        'slots = 3\n[jobs.report]\nevery = "5m"\n[[tasks]]\nname = "x"\n'
    )
    assert load(tmp_path).slots == 3


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("fencepost.toml", "leader-ttl = 3", "there is no setting 'leader-ttl'; did you mean 'leader_ttl'"),
        ("fencepost.toml", "slots = ", "is not valid TOML"),
        ("fencepost.toml", "slots = 'x'", "fencepost.toml: slots: 'x' is not a whole number"),
        ("fencepost.toml", "slots = 1979-05-27", "slots: .* is not a whole number"),
        ("pyproject.toml", "[tool.fencepost]\nport = -1", "pyproject.toml: port: -1"),
        ("pyproject.toml", "[tool]\nfencepost = 3", "'fencepost' in .* must be a table"),
        ("pyproject.toml", "tool = 3", "'tool' in .* must be a table"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, file, content, message):
    (tmp_path / file).write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path)


def test_an_unknown_override_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="no setting 'slot'; did you mean 'slots'"):
        load(tmp_path, slot=3)


# The store


def test_the_store_given_is_used_as_it_is():
    assert Settings(store="redis://:pw@h").store_url(env={"KUBERNETES_SERVICE_HOST": "x"}) == "redis://:pw@h"


def test_without_a_store_it_is_a_sqlite_file():
    assert Settings().store_url(env={}) == "sqlite:///fencepost.db"


def test_in_kubernetes_a_store_must_be_given(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ConfigurationError, match="set FENCEPOST_STORE"):
        Settings().store_url()


# Secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hush@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgresql://u:hush@h1:1,h2:2/db", "postgresql://u:***@h1:1,h2:2/db"),
        ("postgresql://u@srv:hush@h/db", "postgresql://u@srv:***@h/db"),
        ("postgresql://u:hu@sh/hu?sh#hush@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u@h:5432/db", "postgresql://u@h:5432/db"),
        ("postgresql://h/db?user=u&password=hush", "postgresql://h/db?user=u&password=***"),
        ("postgresql://h/db?sslpassword=hu@s#h&x=1", "postgresql://h/db?sslpassword=***&x=1"),
        ("redis://:hush@[::1]:6379/0", "redis://:***@[::1]:6379/0"),
        ("redis://://hush@h", "redis://:***@h"),
        ("rediss://h:6379/0", "rediss://h:6379/0"),
        ("sqlite:///srv/a@b.db", "sqlite:///srv/a@b.db"),
        ("memory://", "memory://"),
        ("u:hush@h/db", "u:***@h/db"),
        ("postgresql:/u:hush@h/db", "postgresql:***@h/db"),
        ("host=h password=hush user=u", "host=h password=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert redacted(url) == shown
    assert redacted(shown) == shown


@given(st.text(min_size=1).map(lambda text: f"hush{text}hush"))
def test_no_password_survives(password):
    assert "hush" not in redacted(f"postgresql://user:{password}@host:5432/db")


def test_secrets_are_not_shown():
    settings = Settings(store="redis://u:hush@h", auth_token="hush")
    assert "hush" not in repr(settings)
    assert "store='redis://u:***@h'" in repr(settings)
    assert "auth_token='***'" in repr(settings)
    assert "auth_token=None" in repr(Settings())


def test_no_error_shows_a_secret(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {"FENCEPOST_AUTH_TOKEN": "hush", "FENCEPOST_STORE": "redis://:hush@h"}, slots=0)
    assert "hush" not in str(caught.value)
