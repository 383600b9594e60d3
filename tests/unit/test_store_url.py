"""A broken store URL is refused before a driver can print a piece of its password."""

from __future__ import annotations

import pytest

from fencepost import ConfigurationError, Scheduler, Settings
from fencepost.cli import outcome
from fencepost.settings import checked_store_url
from fencepost.store.urls import store_from_url

BROKEN = (
    "redis://:hunter2secret",
    "redis://:hunter2secret@[::1",
    "redis://user:hunter2/secret@127.0.0.1:1/0",
    "redis://user:hunter2?secret@127.0.0.1:1/0",
    "redis://user:hunter2#secret@127.0.0.1:1/0",
    "redis://user:12/secret@127.0.0.1:1/0",
    "redis://user:12?secret@127.0.0.1:1/0",
    "redis://user:12#secret@127.0.0.1:1/0",
    "redis://:hunter2secret@127.0.0.1:port/0",
    "redis://:hunter2secret@127.0.0.1:99999/0",
    "redis://127.0.0.1:1/0?password=hunter2&secret=x",
    "redis://127.0.0.1:1/0?password=hunter2&secret",
    "redis://:hunter2[secret@127.0.0.1:1/0",
    "rediss://:hunter2secret@127.0.0.1:1/0?ssl_cert_reqs=nonsense",
    "postgresql://u:hunter2@secret@127.0.0.1:1/db",
    "postgresql://u:hunter2/secret@127.0.0.1:1/db",
    "postgresql://u:hunter2?secret@127.0.0.1:1/db",
    "postgresql://u:12?secret@127.0.0.1:1/db",
    "postgresql://u:hunter2#secret@127.0.0.1:1/db",
    "postgresql://u:hunter2%secret@127.0.0.1:1/db",
    "postgresql://u:hunter2[secret@127.0.0.1:1/db",
    "postgresql://u:hunter2 secret@127.0.0.1:1/db",
    "postgresql://u:hunter2secret@127.0.0.1:x/db",
    "postgresql://u:hunter2secret@127.0.0.1:1/db?nonsense=1",
    "postgresql://127.0.0.1:1/db?password=hunter2&secret",
    "postgresql:u:hunter2secret@host/db",
    "postgresql//u:hunter2secret@host/db",
    "postgres://u:hunter2secret@[127.0.0.1/db",
    "reddis://:hunter2secret",
    "hunter2secret",
    ":hunter2secret@host",
    "sqlite://u:hunter2secret@host/x.db",
    "sqlite://[hunter2secret",
    "file://hunter2secret/x",
    "mongodb://u:hunter2secret@host/db",
    "memory://u:hunter2secret@h[",
)


@pytest.mark.parametrize("url", BROKEN)
def test_a_broken_url_shows_nothing_of_its_password(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["status", "--store", url]) == 78
    printed = "".join(capsys.readouterr())
    assert "hunter2" not in printed
    assert "secret" not in printed
    assert "Traceback" not in printed
    with pytest.raises(ConfigurationError) as caught:
        Scheduler(url).store  # noqa: B018
    assert "hunter2" not in str(caught.value) + repr(caught.value.__cause__)


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "sqlite:///app.db",
        "sqlite:////var/lib/my [1] app.db",
        "file:///var/lib/fencepost",
        "file:jobs",
        "redis://localhost",
        "redis://:p%40ss@localhost:6379/0",
        "redis://user:raw@and^odd|~@localhost:6379/0?prefix=jobs",
        "rediss://user:pw@[2001:db8::1]:6380/1?ssl_cert_reqs=none",
        "valkey://127.0.0.1:6379",
        "postgresql://user:p%2Fw@host:5432/db?sslmode=require&application_name=x",
        "postgresql://a:1,b:2/db?target_session_attrs=primary",
        "postgresql:///db?host=/run/postgresql&user=me@example",
        "postgresql://%2Frun%2Fpostgresql/db",
        "postgres://user@host",
    ],
)
def test_a_sound_url_is_taken_as_it_is(url: str) -> None:
    assert checked_store_url(url) == url
    assert Settings.load(env={"FENCEPOST_STORE": url}).store == url


@pytest.mark.parametrize("namespace", [".", "..", "...", "../x", "a/b", ""])
@pytest.mark.parametrize("url", ["sqlite:///app.db", "file:jobs"])
def test_a_namespace_is_a_name(url: str, namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        store_from_url(url, namespace)
    if namespace:
        with pytest.raises(ConfigurationError, match="is not a namespace"):
            Settings.load(env={"FENCEPOST_NAMESPACE": namespace})
