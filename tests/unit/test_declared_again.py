"""A job that follows one whose row cannot be read is declared again until it is stored."""

from __future__ import annotations

from fencepost.model import Job
from fencepost.model.triggers import every
from fencepost.model.triggers.following import After
from fencepost.store.unreadable import Unreadable
from tests.unit.apps.cluster import HEARTBEAT, Cluster


def test_it_is_stored_when_its_parent_can_be_read() -> None:
    cluster = Cluster()
    parent, child = Job("parent", "body", every(minutes=1)), Job("child", "body", After(("parent",)))
    cluster.add(parent)
    cluster.run(1.0)
    state = cluster.memory.state
    row = state.jobs.rows["parent"]
    state.set_aside(Unreadable("job", "parent", "a test", "parent", holds=True), row)
    member = cluster.add(child)
    cluster.run(3 * HEARTBEAT)
    assert "child" not in state.jobs.rows
    told = [event.detail for _, event in member.events if event.kind == "job.refused"]
    assert told == [
        "child: unreadable: it follows parent, and that job cannot be read; see `fencepost doctor`"
    ]
    state.broken.mended("job", "parent")
    state.jobs.rows["parent"] = row
    cluster.run(3 * HEARTBEAT)
    assert state.jobs.rows["parent"].children == ("child",)
    assert "child" in state.jobs.rows
