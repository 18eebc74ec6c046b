"""Delivers jobs to the worker endpoint: through QStash, or by a direct HTTP request."""

from __future__ import annotations

import json
import logging
import os
from urllib.parse import quote

from evervec.errors import SettingsError
from evervec.model.jobs import Job
from evervec.runtime.http import Connections, HttpFailure
from evervec.settings import Settings
from evervec.telemetry.visible import without_secrets

log = logging.getLogger("evervec")

WORKER_PATH = "/internal/worker"
_QSTASH = "https://qstash.upstash.io"
_CONNECT_SECONDS = 10.0


def configured(settings: Settings, name: str) -> str:
    """A setting of push mode; falls back to the environment variable with its name in capitals."""
    return getattr(settings, name) or os.environ.get(name.upper(), "")


class Courier:
    """Delivers jobs to the worker endpoint of one service."""

    def __init__(self, url: str, settings: Settings) -> None:
        # a direct request is answered only when the job is done
        self._seconds = settings.lease_seconds
        worker_url = url.rstrip("/") + WORKER_PATH
        secret = configured(settings, "worker_secret")
        self._worker = _connections(worker_url, {"x-worker-secret": secret} if secret else {})
        self._qstash = None
        if token := configured(settings, "qstash_token"):
            qstash = (configured(settings, "qstash_url") or _QSTASH).rstrip("/")
            publish_url = f"{qstash}/v2/publish/{worker_url}"
            self._qstash = _connections(publish_url, {"Authorization": f"Bearer {token}"})

    def __enter__(self) -> Courier:
        return self

    def __exit__(self, *_: object) -> None:
        for connections in (self._worker, self._qstash):
            if connections is not None:
                connections.close()

    def hand_over(self, job: Job) -> bool:
        """Whether the job was accepted, by QStash or by the worker endpoint."""
        if self._qstash is not None:
            once = quote(f"{job.kind}:{job.record_id}:{job.token}", safe=":/@+,=")
            headers = {"Upstash-Deduplication-Id": once}
            if self._accepts("QStash", self._qstash, job, headers, late=False):
                return True
        # if it does not answer in time, it may still be processing the job: the lease decides
        return self._accepts("the worker endpoint", self._worker, job, {}, late=True)

    def _accepts(
        self, whom: str, at: Connections, job: Job, headers: dict[str, str], *, late: bool
    ) -> bool:
        """Whether a job was accepted; `late` if there was no answer in time."""
        body = json.dumps({"job_id": job.job_id, "token": job.token}).encode()
        try:
            status = at.exchange("POST", "", body, self._seconds, headers).status
        except (HttpFailure, TimeoutError) as error:
            in_doubt = late and isinstance(error, TimeoutError)
            return in_doubt or _log_undelivered(whom, job, type(error).__name__)
        return 200 <= status < 300 or _log_undelivered(whom, job, f"status {status}")


def _connections(url: str, headers: dict[str, str]) -> Connections:
    try:
        return Connections(url, headers, _CONNECT_SECONDS)
    except ValueError as error:
        shown = without_secrets(url)
        raise SettingsError(f"jobs cannot be sent to {shown}: {error}") from None


def _log_undelivered(whom: str, job: Job, why: str) -> bool:
    log.warning(
        "job %d could not be sent to %s: %s", job.job_id, whom, why,
        extra={"job_id": job.job_id},
    )  # fmt: skip
    return False
