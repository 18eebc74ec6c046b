"""Delivers jobs to the worker endpoint: through QStash, or by a direct HTTP request."""

from __future__ import annotations

import json
import logging
import os
import ssl
from functools import cache
from urllib.parse import quote

import httpx

from evervec.model.jobs import Job
from evervec.settings import Settings

log = logging.getLogger("evervec")

WORKER_PATH = "/internal/worker"
_QSTASH = "https://qstash.upstash.io"
_CONNECT_SECONDS = 10.0


def configured(settings: Settings, name: str) -> str:
    """A setting of push mode; falls back to the environment variable with its name in capitals."""
    return getattr(settings, name) or os.environ.get(name.upper(), "")


@cache
def _certificates() -> ssl.SSLContext:
    """The machine's certificates, loaded once: each dispatch creates a courier."""
    return httpx.create_ssl_context()


class Courier:
    """Delivers jobs to the worker endpoint of one service."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._worker_url = url.rstrip("/") + WORKER_PATH
        self._qstash = configured(settings, "qstash_url") or _QSTASH
        self._token = configured(settings, "qstash_token")
        self._secret = configured(settings, "worker_secret")
        # a direct request is answered only when the job is done
        timeout = httpx.Timeout(settings.lease_seconds, connect=_CONNECT_SECONDS)
        self._http = httpx.Client(timeout=timeout, verify=_certificates())

    def __enter__(self) -> Courier:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def hand_over(self, job: Job) -> bool:
        """Whether the job was accepted, by QStash or by the worker endpoint."""
        body = json.dumps({"job_id": job.job_id, "token": job.token}).encode()
        return (self._token != "" and self._publish(job, body)) or self._send(job, body)

    def _publish(self, job: Job, body: bytes) -> bool:
        once = quote(f"{job.kind}:{job.record_id}:{job.token}", safe=":/@+,=")
        headers = {"Authorization": f"Bearer {self._token}", "Upstash-Deduplication-Id": once}
        url = f"{self._qstash.rstrip('/')}/v2/publish/{self._worker_url}"
        try:
            return self._post("QStash", job, url, body, headers)
        except httpx.HTTPError as error:
            return _log_undelivered("QStash", job, type(error).__name__)

    def _send(self, job: Job, body: bytes) -> bool:
        headers = {"x-worker-secret": self._secret} if self._secret else {}
        try:
            return self._post("the worker endpoint", job, self._worker_url, body, headers)
        except httpx.ReadTimeout:
            return True  # the worker may still be processing it: the lease decides
        except httpx.HTTPError as error:
            return _log_undelivered("the worker endpoint", job, type(error).__name__)

    def _post(self, whom: str, job: Job, url: str, body: bytes, headers: dict[str, str]) -> bool:
        answer = self._http.post(
            url, content=body, headers={"Content-Type": "application/json", **headers}
        )
        return answer.is_success or _log_undelivered(whom, job, f"status {answer.status_code}")


def _log_undelivered(whom: str, job: Job, why: str) -> bool:
    log.warning(
        "job %d could not be sent to %s: %s", job.job_id, whom, why,
        extra={"job_id": job.job_id},
    )  # fmt: skip
    return False
