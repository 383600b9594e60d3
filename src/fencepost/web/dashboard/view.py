"""One request for a page: who asks, for what, and how links and times are written for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from fencepost.insight.visible import VisibleStore
from fencepost.web.access import Caller
from fencepost.web.access_log import CALLER
from fencepost.web.dashboard.paths import segment
from fencepost.web.dashboard.zones import Zones
from fencepost.web.problems import Problem

if TYPE_CHECKING:
    from fencepost.web.app import WebApp

LONGEST_VALUE = 500
MOST_VALUES = 600
"""In a query: a page of jobs with all of them ticked."""

Query = Mapping[str, list[str]]
T = TypeVar("T")


@dataclass(frozen=True)
class View:
    web: WebApp
    caller: Caller
    root: str
    """The path that the dashboard is mounted under, without a slash at its end."""
    path: str
    names: Mapping[str, str]
    """From the path: `id` of a job, `key` of a fire."""
    query: Query
    zones: Zones = field(default_factory=Zones)

    @classmethod
    def of(cls, web: WebApp, request: Request) -> View:
        query: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items()[: MOST_VALUES + 1]:
            query.setdefault(name[:LONGEST_VALUE], []).append(value)
        if sum(map(len, query.values())) > MOST_VALUES:
            raise Problem(422, f"at most {MOST_VALUES} parameters")
        zones = Zones.asked(query.get("tz", ["UTC"])[0])
        root = root_of(request)
        path = request.scope["path"].removeprefix(root) or "/"
        return cls(web, request.scope[CALLER], root, path, dict(request.path_params), query, zones)

    async def read(self, work: Callable[[VisibleStore], Awaitable[T]]) -> T:
        """Read this from the store, as far as the caller sees it."""
        return await self.web.desk.read(lambda store: work(VisibleStore(store, self.caller.sight)))

    def asked(self, name: str, default: str = "") -> str:
        """One parameter of the query, as text without its spaces around."""
        return self.query.get(name, [default])[0].strip()[:LONGEST_VALUE] or default

    def several(self, name: str) -> list[str]:
        return list(dict.fromkeys(each for each in self.query.get(name, []) if each))

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """One of these; the first unless asked for another."""
        given = self.asked(name, known[0])
        return given if given in known else known[0]

    @property
    def may_operate(self) -> bool:
        return self.caller.may("operate")

    @property
    def may_define(self) -> bool:
        return self.caller.may("admin")

    @cached_property
    def kept(self) -> dict[str, str]:
        """What every link takes along."""
        return {} if self.zones.name == "UTC" else {"tz": self.zones.name}

    def link(self, path: str, **query: Any) -> str:
        """An address of this dashboard. Values that are None or empty are left out; a list stands for several."""
        pairs: list[tuple[str, str]] = []
        for name, value in {**self.kept, **query}.items():
            for each in value if isinstance(value, list | tuple) else [value]:
                if each is not None and each != "":
                    pairs.append((name, str(each)))
        return f"{self.root}{path}" + (f"?{urlencode(pairs)}" if pairs else "")

    def same(self, **changes: Any) -> str:
        """This page with something else asked for."""
        return self.link(self.path, **{**self.query, **changes})

    def job(self, id: str, action: str = "", **query: Any) -> str:
        return self.link(f"/jobs/{segment(id)}{action and f'/{action}'}", **query)

    def fire(self, key: str, action: str = "", **query: Any) -> str:
        return self.link(f"/fires/{segment(key)}{action and f'/{action}'}", **query)

    @property
    def shared_as(self) -> tuple[Any, ...]:
        """The key of the page: requests with equal keys share one."""
        query = tuple((name, *values) for name, values in sorted(self.query.items()))
        return ("page", self.root, self.path, query, self.caller.role, self.caller.jobs)


def root_of(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")
