"""Which URL an alias of `DATABASES` stands for."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from fencepost.django.databases import _postgres_url, is_url
from fencepost.settings import Settings

DATABASE = {"NAME": "shop", "USER": "ann", "PASSWORD": "secret", "HOST": "db.example", "PORT": "5433"}


def read_back(database: dict[str, Any]) -> dict[str, Any]:
    """As the driver reads the URL, after our own checks of it."""
    return conninfo_to_dict(Settings(store=_postgres_url(database)).store_url())


def test_all_of_it() -> None:
    assert read_back(DATABASE) == {
        "dbname": "shop",
        "user": "ann",
        "password": "secret",
        "host": "db.example",
        "port": "5433",
    }


@pytest.mark.parametrize("secret", ["p@ss/w?rd#%[]: &=+", "ä€", "%40"])
def test_any_password(secret: str) -> None:
    given = {**DATABASE, "PASSWORD": secret, "USER": secret, "NAME": secret}
    read = read_back(given)
    assert (read["password"], read["user"], read["dbname"]) == (secret, secret, secret)


def test_a_socket_and_nothing_else() -> None:
    assert read_back({"NAME": "shop", "HOST": "/var/run/postgresql", "PORT": 5433}) == {
        "dbname": "shop",
        "host": "/var/run/postgresql",
        "port": "5433",
    }
    assert read_back({"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}) == {
        "dbname": "shop"
    }


def test_options_for_postgresql_alone() -> None:
    options = {
        "sslmode": "require",
        "pool": True,
        "isolation_level": 2,
        "options": "-c search_path=shop,public",
    }
    read = read_back({**DATABASE, "OPTIONS": options})
    assert read["sslmode"] == "require"
    assert read["options"] == "-c search_path=shop,public"
    assert not {"pool", "isolation_level"} & set(read)


def test_a_service_of_postgresql() -> None:
    assert read_back({"OPTIONS": {"service": "shop"}})["service"] == "shop"


def test_several_hosts() -> None:
    read = read_back({**DATABASE, "HOST": "a.example,b.example", "PORT": ""})
    assert read["host"] == "a.example,b.example"


def test_an_alias_is_no_url() -> None:
    assert not is_url("default")
    assert is_url("redis://localhost")
    assert is_url("file:jobs")
