"""What became of the change that a ticket stands for."""

from __future__ import annotations

from typing import NamedTuple

from evervec.model.jobs import Status, Ticket


class TicketState(NamedTuple):
    """A record, its job and ledger entry of the serving version, and its outstanding jobs."""

    state: str
    seq: int
    born: int
    status: str | None
    finished_seq: int | None
    ledger_seq: int | None
    to_appear: int | None
    """the seq of a job, of any version, that opens a box or loads the record"""
    to_open: int | None
    """the seq of a box that waits, of any version"""
    waits: bool
    """a job of any version is pending or processing"""

    def has(self, ticket: Ticket) -> bool:
        """Whether the ticket's change was committed: the record is at least as new, or a job will
        make it so. Other numbers prove nothing: a later job for an older text has a larger one."""
        return max(self.seq, self.to_appear or 0) >= ticket.seq


def end_of(ticket: Ticket, row: TicketState | None) -> Status | None:
    """How a ticket's change ended; None while it may still be done."""
    if not ticket.seq:  # nothing had to change
        return Status.DONE
    if row is None or not row.has(ticket):
        return None
    done = max(row.finished_seq or 0, row.ledger_seq or 0) >= ticket.seq
    # after a switch, boxes are passed on one after another
    opened = (row.to_open or 0) < ticket.seq
    if done and (row.seq >= ticket.seq or (row.status == Status.DONE and opened)):
        return Status.DONE
    if row.status == Status.FAILED:
        return Status.FAILED
    if row.waits or row.status is not None:
        return None
    # There is no job: it was done and purged, or cancelled. A deleted record has a later seq than
    # it had when it appeared.
    deleted = row.state == "deleted" and row.seq != row.born
    return Status.DONE if deleted else Status.FAILED
