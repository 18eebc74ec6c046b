"""A writer that is killed in the middle of a stream of records."""

from evervec import Evervec
from support.fault_checks import assert_true_to, settle
from support.places import Place, query
from support.processes import Start


def test_a_writer_killed_in_its_stream_loses_nothing_it_has_a_ticket_for(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Records come with their jobs or not at all, up to the last ticket and beyond."""
    writer = start("add", path, settings={"add_batch": 20})
    writer.at("added", "333")
    writer.kill()
    acknowledged = {said["about"] for said in writer.rest() if said["at"] == "added"}
    assert len(acknowledged) >= 333
    there = dict(query(path, "select id, text from evervec_records"))
    assert acknowledged <= there.keys()
    assert len(there) % 20 == 0  # whole batches
    assert ev.queue.stats().pending == len(there)
    settle(ev)
    assert_true_to(ev, path, there)
