"""The MySQL store on MariaDB: the conformance suite and the comparison."""

from __future__ import annotations

import pytest

from fencepost.store.mysql import MysqlStore
from fencepost.testing.conformance import HandClock, Harness
from tests.protocol.comparison import ComparedStore


@pytest.mark.slow
class TestMysql(ComparedStore):
    @pytest.fixture
    async def harness(self, mysql_server):
        clock = HandClock()
        store = MysqlStore(mysql_server.url, clock=clock)
        await store.open()
        mysql_server.execute("use test", *EMPTY)
        yield Harness.with_clock(store, clock)
        await store.close()


TABLES = "jobs outcomes events targets fires replicas replicatargets entries beacons"
EMPTY = [
    *(f"delete from fencepost_{table}" for table in TABLES.split()),
    "delete from fencepost_meta where name = 'leader'",
]
