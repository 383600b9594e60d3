"""Channels: how a notice leaves Fencepost.

In reading order: `channel` (what one is), `sending` and `http` (bounded, without secrets in any text), `webhook` and
`signing`, `words` (a notice in English) with `chat` and `mail`, `runs` with `sentry` and `healthchecks`, `function`,
`config` (channels in fencepost.toml), `causes` (what a rule can ask for).
"""

from fencepost.errors import DeliveryFailed
from fencepost.model.notices import Notice
from fencepost.notify.causes import (
    failed,
    failed_in_a_row,
    late,
    lost,
    missed,
    no_success_for,
    recovered,
    started,
    succeeded,
)
from fencepost.notify.channel import Channel
from fencepost.notify.chat import mattermost, slack, teams
from fencepost.notify.function import call
from fencepost.notify.healthchecks import healthchecks
from fencepost.notify.mail import email
from fencepost.notify.sentry import sentry
from fencepost.notify.signing import verify
from fencepost.notify.webhook import webhook

__all__ = [
    "Channel",
    "DeliveryFailed",
    "Notice",
    "call",
    "email",
    "failed",
    "failed_in_a_row",
    "healthchecks",
    "late",
    "lost",
    "mattermost",
    "missed",
    "no_success_for",
    "recovered",
    "sentry",
    "slack",
    "started",
    "succeeded",
    "teams",
    "verify",
    "webhook",
]
