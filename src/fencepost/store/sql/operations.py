"""Operations of `rules/` that stores over SQL take in a way of their own."""

from __future__ import annotations

from fencepost.store.rules import claims, presence, updates

ABOUT_REPLICAS = (presence.heartbeat, presence.leave, presence.roster, presence.sweep)
"""They read what replicas know."""
REPEATABLE = (claims.claim_fires, updates.update_claims)
"""Replicas repeat them until they are answered, and they are made for it."""
