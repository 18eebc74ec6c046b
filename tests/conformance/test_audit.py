"""The audit log: kept in order, found by what it says, and swept by age."""

from evervec.server.audit import Audit
from evervec.stores.service_values import AuditChoice, StoredEntry
from support.world import World


def test_entries_are_kept_in_order_and_found_by_what_they_say(world: World) -> None:
    store = world.ev.store
    audit = Audit(store)
    for n in range(5):
        store.service.add_audit(
            [
                StoredEntry(
                    store.now(), f"key{n % 2}", "agent", "acme" if n else "other", "record.delete",
                    f"note/{n}", "done", f"request{n}", "192.0.2.1",
                ),
            ]
        )  # fmt: skip
        world.clock.move(10)
    audit.note("command line (ann)", "*", "key.revoke", "x" * 5000)

    def targets(chosen: AuditChoice, limit: int = 100) -> list[str]:
        return [entry.target for entry in audit.list(chosen, limit)]

    newest = audit.list(AuditChoice(), 2)
    assert [entry.action for entry in newest] == ["key.revoke", "record.delete"]
    assert (newest[0].key_id, newest[0].request_id, newest[0].client) == (None, None, None)
    assert len(newest[0].target) == 1000
    assert (newest[1].key_id, newest[1].request_id, newest[1].client) == (
        "key0", "request4", "192.0.2.1",
    )  # fmt: skip
    assert newest[1].at < newest[0].at
    assert targets(AuditChoice(tenant="other")) == ["note/0"]
    assert targets(AuditChoice(key_id="key1")) == ["note/3", "note/1"]
    assert targets(AuditChoice(action="record.delete", before=newest[1].entry)) == [
        "note/3", "note/2", "note/1", "note/0",
    ]  # fmt: skip
    assert targets(AuditChoice(action="record.delete", since=store.now() - 25)) == [
        "note/4", "note/3",
    ]  # fmt: skip
    oldest = audit.list(AuditChoice(), 100)[-1].entry
    least = AuditChoice(action="record.delete", before=oldest + 4, least=oldest + 2)
    assert targets(least) == ["note/3", "note/2"]
    assert store.service.forget_audit(store.now() - 25) == 3
    assert targets(AuditChoice(action="record.delete")) == ["note/4", "note/3"]


def test_of_each_action_on_a_tenant_the_latest_entries_are_kept(world: World) -> None:
    service = world.ev.store.service
    counts = {("acme", "queue.pause"): 25, ("acme", "key.revoke"): 3, ("other", "queue.pause"): 10}
    for (tenant, action), count in counts.items():
        service.add_audit(
            [StoredEntry(0.0, "k", "a", tenant, action, str(n), "done") for n in range(count)]
        )

    def targets(tenant: str, action: str) -> list[str]:
        chosen = AuditChoice(tenant=tenant, action=action)
        return [entry.target for entry in service.audit(chosen, 100)]

    assert sorted(service.frequent_audit(9)) == [("acme", "queue.pause"), ("other", "queue.pause")]
    assert service.frequent_audit(10) == [("acme", "queue.pause")]
    assert service.trim_audit("acme", "queue.pause", 10, 7) == 7
    assert targets("acme", "queue.pause")[-1] == "7"
    assert service.trim_audit("acme", "queue.pause", 10, 100) == 8
    assert targets("acme", "queue.pause") == [str(n) for n in range(24, 14, -1)]
    assert service.trim_audit("acme", "queue.pause", 10, 100) == 0
    assert service.trim_audit("nobody", "queue.pause", 10, 100) == 0
    assert len(targets("acme", "key.revoke") + targets("other", "queue.pause")) == 13
