"""The site's state in the changelog, with which a proxy begins at a site log whose beginning is gone."""

from __future__ import annotations

from federation.ports import SiteSnapshot
from proxy.core.effects import PutSite
from proxy.core.environment import Environment
from proxy.core.output import Output
from waypost.errors import WaypostError
from waypost.identity import log_epoch_of


class SiteSnapshots:
    """Writes the site's state now and then. All proxies of a site have the same, and one of them writes it."""

    def __init__(self, env: Environment, output: Output) -> None:
        self._env = env
        self._output = output
        self._due_at = 0
        self._position = 0
        """The position of the last snapshot that we wrote."""

    def changelog_lost(self) -> None:
        """Have the next :meth:`tick` write the site's state again, also if it has not changed: the changelog may have
        lost it.
        """
        self._due_at = self._position = 0

    def tick(self) -> None:
        """Write the site's state to the changelog, every `snapshot_ms`, if it has changed and this proxy is the one
        that writes it (:attr:`ClusterView.is_site_reporter`).

        Where something of the log could not be read nothing is written: other proxies may know better.
        """
        now_ms, position = self._env.time.now_ms, self._env.state.position
        is_due = now_ms >= self._due_at and position != self._position
        if not is_due or not self._env.cluster.is_site_reporter or self._env.state.is_broken:
            return

        def written(error: WaypostError | None) -> None:
            if error is None:
                self._position = position
            else:
                self._due_at = 0

        self._due_at = now_ms + self._env.settings.snapshot_ms
        snapshot = SiteSnapshot(position, self._env.state.snapshot(), log_epoch_of(self._env.state.origin))
        self._output.emit(PutSite(snapshot, written))
