"""The MySQL and MariaDB store: many machines, one primary. Why it is done this way: docs/decisions/0072-mysql.md."""

from fencepost.errors import missing_extra

try:
    import pymysql as _driver  # noqa: F401
except ImportError as error:
    raise missing_extra("a MySQL or MariaDB store", error, "mysql") from error

from fencepost.store.mysql.store import MysqlStore

__all__ = ["MysqlStore"]
