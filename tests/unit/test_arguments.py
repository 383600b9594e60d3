"""Arguments as dataclasses and pydantic models: checked when declared, triggered and run; their schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from fencepost import Scheduler, every
from fencepost.errors import ConfigurationError
from fencepost.runs.tasks import Task
from fencepost.testing import virtual


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Order:
    user: int
    items: list[Item] = field(default_factory=list)
    kind: Literal["new", "again"] = "new"
    note: str | None = None

    def __post_init__(self) -> None:
        if self.user < 0:
            raise ValueError("user must not be negative")


class Report(BaseModel):
    region: str = Field(max_length=2)
    days: int = 7


def handle(order: Order, report: Report | None = None, dry: bool = False) -> None: ...


GOOD: dict[str, Any] = {"order": {"user": 1, "items": [{"name": "a"}]}, "report": {"region": "ch"}}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"order": 7}, "order: must be an object with the fields of Order, not 7"),
        ({"order": {}}, "order.user: is missing"),
        ({"order": {"user": 1, "usr": 2}}, "order.usr: is no such field"),
        ({"order": {"user": "1"}}, "order.user: must be a whole number, not '1'"),
        ({"order": {"user": True}}, "order.user: must be a whole number, not True"),
        (
            {"order": {"user": 1, "items": [{"name": "a"}, {"name": 3}]}},
            "order.items.1.name: must be a string",
        ),
        ({"order": {"user": 1, "kind": "old"}}, "order.kind: must be one of 'new', 'again', not 'old'"),
        ({"order": {"user": -1}}, "order: user must not be negative"),
        ({"order": {"user": 1}, "report": {"region": "che"}}, "report.region: String should have at most 2"),
        ({"order": {"user": 1}, "report": {}}, "report.region: Field required"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_the_field(args: dict[str, Any], says: str) -> None:
    scheduler = Scheduler("memory://")
    with pytest.raises(ConfigurationError) as refused:
        scheduler.job(every(hours=1), id="handle", args=args)(handle)
    assert says in str(refused.value)
    assert "job handle" in str(refused.value)


def test_the_function_gets_the_models() -> None:
    scheduler, seen = Scheduler("memory://"), list[Any]()

    @scheduler.job(every(hours=1), args=GOOD)
    def declared(order: Order, report: Report | None = None) -> None:
        seen.append((order, report))

    @scheduler.task
    async def by_hand(order: Order) -> None:
        seen.append(order)

    with virtual(scheduler) as time:
        time.advance(hours=1)
        assert seen == [(Order(1, [Item("a", 1)]), Report(region="ch"))]
        handle = time.do(scheduler.trigger(by_hand, args={"order": Order(2)}))
        time.advance(seconds=1)
        assert seen[1:] == [Order(2)]
        assert time.do(handle.record()).args == {
            "order": {"user": 2, "items": [], "kind": "new", "note": None}
        }
        with pytest.raises(ConfigurationError, match=r"a fire of .*by_hand: order.user: is missing"):
            time.do(scheduler.trigger(by_hand, args={"order": {}}))


def test_what_was_stored_before_the_model_changed_fails_with_the_name_of_the_field() -> None:
    scheduler = Scheduler("memory://")

    @scheduler.task(id="late")
    def late(order: Order) -> None: ...

    with virtual(scheduler) as time:
        handle = time.do(scheduler.trigger("late", args={"order": {"user": 1}}))
        object.__setattr__(scheduler.registry.get("late"), "models", {"order": Report})
        time.advance(seconds=1)
        fire = time.do(handle.record())
        assert fire.state == "failed"
        assert "order.region: Field required" in (fire.error or "")


def test_the_schema() -> None:
    schema = Task.of(handle).args_schema
    assert schema["required"] == ["order"]
    assert schema["properties"]["dry"] == {"type": "boolean", "default": False}
    order = schema["properties"]["order"]
    assert (order["title"], order["required"], order["additionalProperties"]) == ("Order", ["user"], False)
    assert order["properties"]["items"]["items"]["properties"]["count"] == {"type": "integer"}
    assert order["properties"]["kind"] == {"enum": ["new", "again"]}
    assert schema["properties"]["report"]["anyOf"][0]["properties"]["region"]["maxLength"] == 2


def test_functions_without_models_are_as_they_were() -> None:
    task = Task.of(lambda region, **more: None, "plain")
    assert task.models == {}
    assert task.check({"region": {"a": 1}, "x": 2}, "job plain") == {"region": {"a": 1}, "x": 2}
    assert task.args_schema["additionalProperties"] is True
