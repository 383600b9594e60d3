"""Notifications over HTTP: what waits for channels, what was set aside, trying that again; and rules made by hand."""

from __future__ import annotations

from fencepost.errors import UsageError
from fencepost.insight.notices import change_notices, outbox_shape, rule_change_shape, rule_shape
from fencepost.model.values import clean_text
from fencepost.notify.causes import causes_from
from fencepost.scheduler.notifications import make_rule
from fencepost.store.base import Store
from fencepost.store.outbox import Outbox, OutboxQuery
from fencepost.web import notice_models
from fencepost.web.endpoint import Call, Endpoint, Shape, no_rule
from fencepost.web.problems import Problem

LONGEST_NAME = 500


async def notifications(call: Call) -> Shape:
    """The outbox of notifications, oldest first within a channel, a page at a time; and how its channels fare."""
    asked: notice_models.NotificationsAsked = call.query
    after = bytes.fromhex(asked.cursor).decode("ascii", "replace") if asked.cursor else ""
    query = OutboxQuery(asked.channel or "", asked.aside, after, asked.limit)

    async def read(store: Store) -> Shape:
        found: Outbox = await store.notices.outbox(query)
        full = len(found.notices) == query.limit
        next = found.notices[-1].key.encode().hex() if full else None
        return {**outbox_shape(found, call.caller.sight), "next": next}

    return await call.web.desk.read(read)


async def retry_notifications(call: Call) -> Shape:
    """Deliver again what was set aside for a channel, under the same ids."""
    asked: notice_models.RetryNotifications = call.body
    sees = call.caller.sees_only

    async def act(store: Store) -> Shape:
        found = (await store.notices.outbox(OutboxQuery(limit=1))).aside
        channels = list(found) if asked.channel is None else [asked.channel]
        try:
            numbers = [await change_notices(store, each, asked.id, "retry", sees) for each in channels]
        except UsageError as error:
            raise Problem(404, str(error)) from None
        return {"channel": asked.channel, "retried": sum(numbers)}

    reply = await call.web.desk.act(act)
    call.web.access_log.acted(call.request, "retry_notifications", asked.channel or "all channels", None)
    return reply


async def rules(call: Call) -> Shape:
    """The rules of notifications, of code and made by hand, and who changed the latter."""
    if call.caller.jobs:  # rules may name other jobs
        return {"items": [], "changes": []}
    found: Outbox = await call.web.desk.read(
        lambda store: store.notices.outbox(OutboxQuery(limit=1, changes=True))
    )
    return {
        "items": [rule_shape(rule) for rule in found.rules],
        "changes": [rule_change_shape(change) for change in found.changes],
    }


async def put_rule(call: Call) -> Shape:
    """Make a rule, or replace the one of this name. It holds beside those that code declares."""
    asked: notice_models.RuleAsked = call.body
    name, by = call.path["rule"], _changer(call)
    causes = causes_from(asked.on)
    rule, changed = await call.web.desk.act(
        lambda store: make_rule(store, name, asked.channel, causes, asked.jobs, asked.quiet, asked.digest, by)
    )
    if changed:
        call.web.access_log.acted(call.request, "put_rule", name, None)
    return rule_shape(rule)


async def delete_rule(call: Call) -> Shape:
    """Remove a rule that was made by hand. What it has put into the outbox is delivered all the same."""
    name, by = call.path["rule"], _changer(call)
    if not await call.web.desk.act(lambda store: store.notices.change_rule(name, None, by)):
        raise no_rule(name)
    call.web.access_log.acted(call.request, "delete_rule", name, None)
    return {"name": name}


def _changer(call: Call) -> str:
    """Who changes a rule. A token for some jobs may not: a rule may be about others, too."""
    if call.caller.jobs:
        raise Problem(
            403, f"{call.caller.name} acts on some jobs only, and rules of notifications are for all"
        )
    return clean_text(call.caller.name, LONGEST_NAME)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/notifications",
        notifications,
        notice_models.NotificationsModel,
        notice_models.NotificationsAsked,
        errors=(304,),
    ),
    Endpoint(
        "POST",
        "/api/v1/notifications/retry",
        retry_notifications,
        notice_models.Retried,
        body=notice_models.RetryNotifications,
        errors=(404,),
        acts_on_many=True,
    ),
    Endpoint("GET", "/api/v1/notifications/rules", rules, notice_models.Rules, errors=(304,)),
    Endpoint(
        "PUT",
        "/api/v1/notifications/rules/{rule}",
        put_rule,
        notice_models.RuleShape,
        body=notice_models.RuleAsked,
        errors=(404,),
        acts_on_many=True,
        role="admin",
    ),
    Endpoint(
        "DELETE",
        "/api/v1/notifications/rules/{rule}",
        delete_rule,
        notice_models.RuleRemoved,
        errors=(404,),
        acts_on_many=True,
        role="admin",
    ),
)
