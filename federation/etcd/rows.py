"""The rows of the registry in etcd, below its prefix, and what changes of them mean.

    <prefix>owner/<session>                 OwnerRow, for ever
    <prefix>incarnation/<proxy>/<inc...>    ProxyRow, under its lease: a restarted proxy has a key of its own,
                                            which the end of the older one's lease does not touch
    <prefix>name/<proxy>                    ProxyRow of the incarnation that has the name, under its lease: what is
                                            compared and set; no event tells of it
    <prefix>leader/<link>                   name of the proxy, under its lease; the epoch is the key's mod
                                            revision, which ascends with each term, also of one lease
    <prefix>drain/<proxy>                   DrainRow, until it is taken back
    <prefix>link/<site>,<site>              LinkRow, for ever
    <prefix>tree                            TreeRow, for ever
    <prefix>site/<site>                     where the site's changelog is, until the site is forgotten; written with
                                            the proxy's row, which is the event that tells of it
    <prefix>log/<site>                      SiteLogRow, for ever; no event tells of it
    <prefix>checkpoint/<session>            EPOCH.SERIAL of the checkpoint up to which clients were answered; goes with
                                            the owner's row; no event tells of it
    <prefix>floor                           the highest generation of a deleted session whose row was removed; no
                                            event tells of it
    <prefix>secret                          32 random bytes, for ever; no event tells of it

A row under a lease goes with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

import aetcd
from aetcd import rpc
from pydantic import BaseModel

from federation.ports import (
    DrainChanged,
    DrainRow,
    LeaderChanged,
    LinkChanged,
    LinkRow,
    OwnerChanged,
    OwnerRow,
    ProxyDown,
    ProxyRow,
    ProxyUp,
    RegistryEvent,
    Reloaded,
    SiteForgotten,
    TreeChosen,
    TreeRow,
)
from waypost.identity import Incarnation, Ownership, ProxyId, SessionId, SiteId, without_row

OWNER, INCARNATION, LEADER, SITE, DRAIN, LOG = "owner/", "incarnation/", "leader/", "site/", "drain/", "log/"
NAME, SECRET, FLOOR, CHECKPOINT = "name/", "secret", "floor", "checkpoint/"
LINK, TREE = "link/", "tree"
UNWATCHED = (SITE, NAME, SECRET, LOG, FLOOR, CHECKPOINT)
"""Rows of which no event tells, but the end of a site's."""


class RegistryView:
    """Turns rows and changes into events; remembers the leaders' epochs, which a deletion does not tell."""

    def __init__(self, prefix_length: int) -> None:
        self._prefix_length = prefix_length
        self._epochs: dict[str, int] = {}

    def load(self, rows: list[Any]) -> Reloaded:
        """Return all rows, as etcd has them at one revision, as the event that replaces everything."""
        state = Reloaded({}, {}, {})
        # In the order of writing: of several incarnations of a proxy the last one stays.
        for row in sorted(rows, key=lambda row: int(row.mod_revision)):
            match self._put(row):
                case OwnerChanged(session, Ownership() as ownership):
                    state.owners[session] = ownership
                case ProxyUp(proxy_row):
                    state.proxies[proxy_row.proxy] = proxy_row
                case LeaderChanged(link, str() as proxy, epoch):
                    state.leaders[link] = (proxy, epoch)
                case DrainChanged(proxy, DrainRow() as drain):
                    state.drains[proxy] = drain
                case LinkChanged(link_row):
                    state.links[link_row.sites] = link_row
                case TreeChosen(tree_row):
                    state = replace(state, tree=tree_row)
                case None:
                    kind, site = self._split(row)
                    if kind == SITE:
                        state.changelogs[SiteId(site)] = row.value.decode()
                case _:
                    pass
        return state

    def event(self, change: Any) -> RegistryEvent | None:
        """Return what a change of one row means; None: nothing, or nothing that another change of its revision does not
        report.

        Call :meth:`load` first, and this for each change behind it, in order: the end of a leadership has the epoch of
        the last row of that leader that was seen here, or 0.

        Args:
            change: an event of etcd's watch (mvccpb.Event), of a key under the prefix.
        """
        deleted = change.type == rpc.Event.EventType.DELETE
        kind, name = self._split(change.kv)
        if kind == SITE and deleted:
            return SiteForgotten(SiteId(name))
        if kind in UNWATCHED:
            return None
        return self._delete(change.kv) if deleted else self._put(change.kv)

    def _split(self, row: Any) -> tuple[str, str]:
        kind, slash, name = row.key[self._prefix_length :].decode().partition("/")
        return kind + slash, name

    def _put(self, row: Any) -> RegistryEvent | None:
        kind, name = self._split(row)
        if kind in UNWATCHED:
            return None
        if kind == OWNER:
            return OwnerChanged(SessionId(name), _ownership(row.value))
        if kind == DRAIN:
            return DrainChanged(ProxyId(name), DrainRow.model_validate_json(row.value))
        if kind == INCARNATION:
            return ProxyUp(ProxyRow.model_validate_json(row.value))
        if kind == LINK:
            return LinkChanged(LinkRow.model_validate_json(row.value))
        if kind == TREE:
            return TreeChosen(TreeRow.model_validate_json(row.value))
        if kind != LEADER:
            # Of a later build, or of somebody else.
            return None
        epoch = self._epochs[name] = int(row.mod_revision)
        return LeaderChanged(name, ProxyId(row.value.decode()), epoch)

    def _delete(self, row: Any) -> RegistryEvent | None:
        kind, name = self._split(row)
        if kind == OWNER:
            return OwnerChanged(SessionId(name), None)
        if kind == INCARNATION:
            proxy, _, incarnation = name.partition("/")
            return ProxyDown(ProxyId(unquote(proxy)), Incarnation(incarnation))
        if kind == DRAIN:
            return DrainChanged(ProxyId(name), None)
        return LeaderChanged(name, None, self._epochs.pop(name, 0)) if kind == LEADER else None


def put_row(key: bytes, row: BaseModel, lease: int | None = None) -> Any:
    """Return the operation of a transaction that writes a row, under the lease with this id or for ever."""
    return aetcd.transactions.Put(key, row.model_dump_json().encode(), lease=lease)


def name_key(prefix: str, proxy: ProxyId) -> bytes:
    """Return the key of the row that says who has a proxy's name."""
    return f"{prefix}{NAME}{quote(proxy, safe='')}".encode()


def owner_value(ownership: Ownership) -> bytes:
    """Return the value of a session's row, which is compared byte by byte."""
    return OwnerRow(proxy=ownership.proxy, epoch=ownership.epoch).model_dump_json().encode()


def read_owner(answers: Any) -> Ownership | None:
    """Return the row that a session has, or that it counts as without one (:func:`waypost.identity.without_row`), from
    answers of etcd; None: the session never existed.

    Args:
        answers: of two reads at one revision, first of the session's row, then of the floor; each is a list of (value,
            metadata), empty if there is no such key.
    """
    row, floor = answers
    return _ownership(row[0][0]) if row else without_row(int(floor[0][0]) if floor else 0)


def _ownership(value: bytes) -> Ownership:
    return OwnerRow.model_validate_json(value).ownership
