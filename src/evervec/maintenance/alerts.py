"""Alerts: a problem is reported when it begins and when it ends, once for all processes.

Problems are kept as episodes in a note of the store. The first process that saves the begin or end
of an episode logs it. With a webhook, the first process that takes a message posts it in a
background thread; a failed post is retried at the next housekeeping. The webhook's URL may be a
secret, so only its host is logged.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from evervec.errors import StoreError
from evervec.runtime.threads import start
from evervec.settings import Settings
from evervec.stores.base import Store

log = logging.getLogger("evervec")
T = TypeVar("T")

_NOTE = "alerts"
_POST_SECONDS = 5.0
_TAKEN_SECONDS = 60.0
"""how long a message that one process took is not taken by another"""
_MOST = 100
"""episodes that are kept for a webhook that is unavailable"""


class Problem(NamedTuple):
    """A problem found by the current housekeeping."""

    name: str
    """identifies the problem, independent of its text"""
    text: str
    since: float | None = None
    """None: since the first time it was found"""
    patience: float = 0.0
    """seconds before it raises an alert"""
    fields: Mapping[str, Any] = {}
    """extra fields of the log record"""


@dataclass(slots=True)
class Episode:
    """A problem from its beginning to its end."""

    name: str
    text: str
    since: float
    raised: bool = False
    """it lasted long enough for an alert"""
    ended: float | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    told: int = 0
    """number of messages posted: first the beginning, then the end"""
    taken_until: float = 0.0

    @property
    def untold(self) -> bool:
        return self.raised and self.told < (1 if self.ended is None else 2)


class Alerts:
    """The alerts of a store, as one process handles them."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._url = settings.alert_url
        self._poster: threading.Thread | None = None

    def lasting(self) -> list[Episode]:
        """The raised alerts as of the last housekeeping of any process."""
        return [e for e in self._read()[0] if e.raised and e.ended is None]

    def update(self, problems: Sequence[Problem]) -> None:
        """Save the current problems, and log alerts that begin or end."""
        now = self._store.now()

        def change(episodes: list[Episode]) -> tuple[list[Problem], list[Episode]]:
            over = _end(episodes, {problem.name for problem in problems}, now)
            begun = [problem for problem in problems if _goes_on(episodes, problem, now)]
            # if any process posted the beginning, the end is posted too
            kept = [e for e in episodes if e.ended is None or (e.untold and (self._url or e.told))]
            episodes[:] = kept[-_MOST:]
            return begun, over

        begun, over = self._change(change)
        for problem in begun:
            log.error("[ALERT] %s", problem.text, extra={"alert": problem.name, **problem.fields})
        for episode in over:
            log.warning("[CLEAR] %s", _is_over(episode), extra={"alert": episode.name})

    # the webhook
    def post_soon(self) -> None:
        """Post pending messages in a background thread."""
        busy = self._poster is not None and self._poster.is_alive()
        if self._url and not busy and any(episode.untold for episode in self._read()[0]):
            self._poster = start("evervec-alerts", self._post_quietly)

    def wait(self) -> None:
        """Wait for a running post, at most for its timeout."""
        if self._poster is not None:
            self._poster.join(_POST_SECONDS + 1)

    def _post_quietly(self) -> None:
        with suppress(StoreError):  # closed or unavailable: a later housekeeping posts the rest
            self.post()

    def post(self) -> None:
        """Post pending messages in order, until one fails."""
        while self._url and (episode := self._change(self._take)):
            problem = _post(self._url, self._message(episode))
            self._change(partial(_put_back, id=episode.id, posted=problem is None))
            if problem is not None:
                log.warning(
                    "an alert could not be posted to %s and will be retried: %s",
                    urlsplit(self._url).hostname, problem,
                )  # fmt: skip
                return

    def _take(self, episodes: list[Episode]) -> Episode | None:
        now = self._store.now()
        for episode in episodes:
            if episode.untold and episode.taken_until <= now:
                episode.taken_until = now + _TAKEN_SECONDS
                return episode
        return None

    def _message(self, episode: Episode) -> dict[str, Any]:
        """The next message of an episode; chat services show `text`."""
        over = episode.told == 1
        return {
            "text": f"[CLEAR] {_is_over(episode)}" if over else f"[ALERT] {episode.text}",
            "alert": episode.name,
            "state": "over" if over else "begun",
            "store": self._store.url,
            "since": _moment(episode.since),
            "until": _moment(episode.ended) if over else None,
            "episode": episode.id,
        }

    # the note
    def _read(self) -> tuple[list[Episode], int | None]:
        note = self._store.shared.note(_NOTE)
        if note is None:
            return [], None
        return [Episode(**episode) for episode in json.loads(note.value)], note.revision

    def _change(self, change: Callable[[list[Episode]], T]) -> T:
        """Change the episodes by compare-and-set, with retries."""
        while True:
            episodes, revision = self._read()
            before = [asdict(episode) for episode in episodes]
            answer = change(episodes)
            after = [asdict(episode) for episode in episodes]
            value = json.dumps(after) if after else None
            if after == before or self._store.shared.put_note(_NOTE, value, revision):
                return answer


def _end(episodes: list[Episode], names: Container[str], now: float) -> list[Episode]:
    """End the episodes that are no longer found; return those that had raised an alert."""
    over = [e for e in episodes if e.ended is None and e.name not in names]
    for episode in over:
        episode.ended = now
    return [episode for episode in over if episode.raised]


def _goes_on(episodes: list[Episode], problem: Problem, now: float) -> bool:
    """Begin an episode if there is none; return whether it raises an alert now."""
    episode = next((e for e in episodes if e.name == problem.name and e.ended is None), None)
    if episode is None:
        since = now if problem.since is None else problem.since
        episode = Episode(problem.name, problem.text, since)
        episodes.append(episode)
    if episode.raised or now - episode.since < problem.patience:
        return False
    episode.raised, episode.text = True, problem.text
    return True


def _put_back(episodes: list[Episode], id: str, posted: bool) -> None:
    for episode in episodes:
        if episode.id == id:
            episode.told += posted
            episode.taken_until = 0.0
    episodes[:] = [e for e in episodes if e.ended is None or e.untold]


def _is_over(episode: Episode) -> str:
    return f"{episode.text}: over after {(episode.ended or 0.0) - episode.since:.0f} s"


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _post(url: str, message: Mapping[str, Any]) -> str | None:
    """Post a message; return the error without the URL, or None. A redirect is an error: messages
    must not be sent to another address."""
    from evervec.runtime import http  # imported late: it is slow to load

    try:
        with closing(http.Connections(url, {})) as webhook:
            status = webhook.exchange(
                "POST", "", json.dumps(message).encode(), _POST_SECONDS
            ).status
    except (http.HttpFailure, TimeoutError, ValueError) as error:
        return type(error.__cause__ or error).__name__
    return None if 200 <= status < 300 else f"status {status}"
