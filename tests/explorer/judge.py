"""What the application did to the data, in the order of its commits, and whether it came true.

`support.oracle` judges the end of a run; this adds what must hold on the way: nothing
acknowledged is lost by a power cut, a ticket that is settled is found, what is deleted is not,
and a record that was found once stays found until it is deleted.
"""

from collections import Counter, defaultdict
from typing import Any

from evervec import Evervec, Status, Ticket
from explorer.steps import Access, Step
from explorer.world import Process, World
from support.oracle import SAME, Key, Oracle, Problem, Wanted

_DECISIVE = ("finish", "switch", "drop", "pass_boxes_on")
"""transactions after which something is found that was not, or the other way round"""


class Judge:
    """The truth of one run."""

    def __init__(self, world: World, before: "Judge | None" = None) -> None:
        """`before`: what was so when the run began."""
        self.world = world
        self.oracle: Oracle = world.oracle
        self.history: dict[Key, list[Wanted | None]] = defaultdict(lambda: [None])
        self.tickets: list[tuple[Key, Ticket, int]] = []
        """acknowledged changes, with their place in the history of their record"""
        self.touched: Counter[Key] = Counter()
        """how often the application did something to a record"""
        self.undone: list[tuple[Key, Ticket, int]] = []
        """adds in transactions that were rolled back, and what `touched` was then"""
        self._synced: tuple[dict[Key, Wanted], dict[Key, int]] = ({}, {})
        self.boxed: dict[tuple[Key, str], int] = {}
        """texts that are added in a box, with the place of that in the history of their record"""
        self.table: str | None = None
        """whether verify is to be asked of this table when it is not followed"""
        self.failing: set[str] = set()
        """ids of records that cannot be embedded, and must fail alone"""
        self.damaged: set[str] = set()
        """ids of records that have points too many, from somebody else"""
        self._onlooker = world.process("onlooker")
        if before is not None:
            self.history.update({k: list(v) for k, v in before.history.items()})
            self.tickets += before.tickets
            self.touched.update(before.touched)
            self.undone += before.undone
            self.boxed |= before.boxed
            self.oracle.wanted.update(before.oracle.wanted)
            self.oracle._tickets += before.oracle._tickets
            self._sync()
        world.disk.on_sync = self._sync
        world.on_power_cut = self._power_cut

    def _sync(self) -> None:
        lengths = {key: len(states) for key, states in self.history.items()}
        self._synced = (dict(self.oracle.wanted), lengths)

    def _power_cut(self) -> None:
        wanted, lengths = self._synced
        for key, states in self.history.items():
            kept = lengths.get(key, 1)
            undone = [t[1] for t in self.tickets if t[0] == key and t[2] >= kept]
            for ticket in undone:
                self.world.blame(f"{key}: seq {ticket.seq} was acknowledged, and the cut undid it")
            if len(states) > kept:
                del states[kept:]
        self.oracle.wanted = dict(wanted)

    # what the application does
    def change(self, p: Process, key: Key, wanted: Wanted | None, method: str, do: Any) -> Any:
        """Make a change by `do`; it counts as soon as `method` of the store has committed."""
        place = len(self.history[key])
        self.touched[key] += 1
        before: list[Wanted | None] = []

        def committed() -> None:
            p.on_commit = None
            before.append(self.history[key][-1])
            self.set(key, wanted)

        p.on_commit = (method, committed)
        try:
            ticket = do()
        finally:
            p.on_commit = None
        if wanted is None and not ticket.accepted and before:
            if before[0] is not None and self.history[key][place - 1 : -1] == [before[0]]:
                self.world.blame(f"{key}: it was there, and is said not to have been deleted")
            self.set(key, before[0])  # it found nothing: what others added meanwhile stays
        self.acknowledged(key, ticket, wanted, place)
        return ticket

    def set(self, key: Key, wanted: Wanted | None) -> None:
        """A committed change."""
        self.touched[key] += 1
        self.history[key].append(wanted)
        if wanted is None:
            self.oracle.wanted.pop(key, None)
        else:
            self.oracle.wanted[key] = wanted

    def acknowledged(self, key: Key, ticket: Any, wanted: Wanted | None, place: int) -> None:
        if isinstance(ticket, Ticket) and ticket.accepted:
            while place < len(self.history[key]) - 1 and self.history[key][place] != wanted:
                place += 1  # others changed the record between
            self.tickets.append((key, ticket, place))
            self.oracle._tickets.append((key.tenant, ticket))

    def digest(self) -> int:
        """A hash of all that is to be judged."""
        history = sorted((key, tuple(states)) for key, states in self.history.items())
        return hash((repr(history), repr(self.tickets), repr(self.undone), repr(self._synced)))

    # on the way
    def watch(self, p: Process, step: Step, access: Access) -> None:
        """Look at all that is promised while versions change, whoever made the step."""
        if step.what not in _DECISIVE or not access.writes:
            return
        with self.world.quietly():
            ev = self._onlooker.ev
            asked = [(key.tenant, ticket) for key, ticket, _ in self.tickets]
            for (key, ticket, _), end in zip(
                self.tickets, ev.store.jobs.settled(asked), strict=True
            ):
                if end is Status.FAILED and key.id not in self.failing:
                    self.world.blame(
                        f"{key}: its ticket of seq {ticket.seq} is said to have failed"
                    )
            for key in {key for key, _ in self.boxed}:
                self.check_box(ev, key)
            for key in list(self.oracle.wanted) if step.what == "switch" else ():
                mine = [(t, place) for k, t, place in self.tickets if k == key]
                self.search(p, ev, key, mine[-1] if mine else None)

    def search(self, p: Process, ev: Evervec, key: Key, since: tuple[Ticket, int] | None) -> None:
        """Search for a record as its tenant, and see that what is found was true at some moment of
        the search; `since`: not older than this acknowledged change, if it is settled."""
        begun = len(self.history[key]) - 1
        first = begun
        must_be_found = False
        mine = ev.of(key.tenant)
        if since is not None:
            ticket, place = since
            first = place
            must_be_found = mine.store.jobs.settled([(key.tenant, ticket)])[0] is Status.DONE
        states = self.history[key]
        text = next((w.text for w in reversed(states[: begun + 1]) if w is not None), None)
        if text is None:
            return
        hits = mine.search(text, 10, kind=key.kind, mode="semantic")
        if hits.via != "semantic":
            return
        possible = self.history[key][min(first, len(self.history[key]) - 1) :]
        found = [hit for hit in hits if hit.id == key.id]
        for hit in hits:
            known = self.history[Key(key.tenant, hit.kind, hit.id)]
            if not any(w is not None and hit.text in w.text for w in known):
                self.world.blame(f"{key.tenant} is shown {hit.text[:30]!r}, which is not theirs")
        if found and key.kind == "note" and all(w is None for w in self.history[key][begun:]):
            self.world.blame(f"{key}: is deleted, and a search finds it")
        if must_be_found and not found and all(w is not None for w in possible):
            self.world.blame(f"{key}: its ticket is settled, and a search does not find it")
        if must_be_found and found and len(possible) == 1 and possible[0] is not None:
            similar = max(hit.similarity or 0.0 for hit in found)
            if similar < SAME and possible[0].text == text and "\n" not in text:
                self.world.blame(f"{key}: its ticket is settled, and a search finds older vectors")

    def check_box(self, ev: Evervec, key: Key) -> None:
        """What comes out of a box has its vectors."""
        mine, states = ev.of(key.tenant), len(self.history[key])
        got = mine.get(key.kind, key.id)
        if got is None or (key, got.text) not in self.boxed or not self._only_boxed(key, got.text):
            return
        hits = mine.search(got.text, 10, kind=key.kind, mode="semantic")
        found = any(hit.id == key.id for hit in hits)
        if hits.via == "semantic" and not found and states == len(self.history[key]):
            self.world.blame(f"{key}: came out of its box without vectors")

    def _only_boxed(self, key: Key, text: str) -> bool:
        """Whether a record had this text for the first time out of a box, and nothing before."""
        states, place = self.history[key], self.boxed[key, text]
        texts = [w.text for w in states if w is not None]
        return texts == [text] and not any(states[:place])

    def check_undone(self, ev: Evervec) -> None:
        """What was rolled back is never said to be done."""
        for key, ticket, touched in self.undone:
            if touched != self.touched[key]:
                continue  # there is a later change, which counts for it
            end = ev.store.jobs.settled([(key.tenant, ticket)])[0]
            if end is Status.DONE and touched == self.touched[key]:
                self.world.blame(f"{key}: an add that was rolled back is said to be done")

    # at the end
    def problems(self, ev: Evervec) -> list[str]:
        """What is wrong once all work is done."""
        self.check_undone(ev)
        found = [str(p) for p in self.oracle.problems(ev) if not self._is_meant(p)]
        return [*self.world.wrong, *found]

    def _is_meant(self, problem: Problem) -> bool:
        if problem.key is None:
            return bool(self.failing) and "jobs are left" in problem.what
        is_surplus = problem.sort in ("stale", "doubled") and problem.key.id in self.damaged
        return is_surplus or problem.key.id in self.failing

    def _verify_without_triggers(self, ev: Evervec) -> list[str]:
        """A table that is no longer followed, or no longer there, is never said to be in step."""
        conn, found = self.world.disk.conn, []
        rows = conn.execute(
            "select name from sqlite_schema where type = 'trigger' and tbl_name = ?", (self.table,)
        ).fetchall()
        ways = {
            "has lost its triggers": [f'drop trigger "{name}"' for (name,) in rows],
            "was renamed": [f"alter table {self.table} rename to elsewhere"],
        }
        for what, statements in ways.items():
            conn.execute("savepoint broken")
            for statement in statements:
                conn.execute(statement)
            if ev.verify(all_tenants=True).clean:
                found.append(f"verify does not see that a table {what}")
            conn.execute("rollback to broken")
            conn.execute("release broken")
        return found

    def verify(self, ev: Evervec, is_wrong: bool) -> list[str]:
        """Whether `verify` says what the oracle says, of this state and of one that is broken."""
        report = ev.verify(all_tenants=True)
        if is_wrong:
            return ["(verify says that all is well)"] if report.complete else []
        if self.failing:
            return []
        found = [] if report.complete else [f"verify finds what is not so: {report}"]
        if self.table:
            found += self._verify_without_triggers(ev)
        if self.world.index_name == "model" and (entries := self.world.index_state.entries):
            place, entry = next(((p, e) for p, e in entries.items() if e.points), (None, None))
            if place is not None and entry is not None:
                del entries[place]
                if ev.verify(all_tenants=True).clean:
                    found.append("verify does not see that a record has no points")
                entries[place] = entry
        return found
