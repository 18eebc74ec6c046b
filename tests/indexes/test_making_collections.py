"""Two workers make the collection of a version at the same moment."""

import threading
from pathlib import Path

from support import qdrant_server
from support.oracle import Application, Oracle
from support.world import World, paragraph, step


def test_whoever_makes_a_collection_second_goes_on_with_it(tmp_path: Path) -> None:
    world = World(("sqlite", "qdrant"), tmp_path)
    app, other = Application(world.ev, Oracle()), world.open()
    app.add("lemon", paragraph("lemon"))
    app.add("granite", paragraph("granite"))
    mine, theirs = world.ev.pipeline.claim(1), other.pipeline.claim(1)
    server, once = qdrant_server.server_of(tmp_path), threading.Lock()

    def meanwhile(method: str, path: str) -> None:
        if method == "PUT" and path.count("/") == 2 and once.acquire(blocking=False):
            step(other, theirs)

    server.before = meanwhile
    step(world.ev, mine)
    assert once.locked(), "nobody made a collection"
    app.oracle.check(world.ev)
    world.close()
