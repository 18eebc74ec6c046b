// Uses a service through the client that was generated from its OpenAPI document. The address and a
// writer's key are arguments.
import assert from "node:assert/strict";
import { client } from "./client/client.gen.js";
import {
  addRecord,
  addRecords,
  deleteRecord,
  getRecord,
  listRecords,
  search,
  waitForChange,
} from "./client/sdk.gen.js";
import type { HitOut, ProblemDocument, RecordOut, TicketOut } from "./client/types.gen.js";

const [url, key] = process.argv.slice(2);
assert(url && key);
client.setConfig({ baseUrl: url, auth: () => key });

// add, wait, search with a filter
const added = await addRecord({
  body: { kind: "note", id: "tea", text: "Tea grows on hills.", metadata: { topic: "drink" } },
  headers: { "Idempotency-Key": "first" },
});
assert(added.data, JSON.stringify(added.error));
const ticket: TicketOut = added.data;
assert.equal(ticket.accepted, true);
const job = await waitForChange({ body: { ticket, wait: 30 } });
assert.equal(job.data?.status, "done");

const other = await addRecord({
  body: { kind: "note", id: 7, text: "Rockets fly to the moon.", metadata: { topic: "space" } },
  headers: { Prefer: "wait=30" },
});
assert.equal(other.response?.status, 201);

const found = await search({
  body: { query: "where does tea grow", kind: ["note"], mode: "hybrid", filter: { topic: "drink" } },
});
assert(found.data);
const hits: HitOut[] = found.data.hits;
assert.deepEqual(
  hits.map((hit) => [hit.id, hit.metadata["topic"]]),
  [["tea", "drink"]],
);
const relevance: number = hits[0]!.relevance;
assert(relevance > 0 && relevance <= 1);

// get; an id may have any characters
const odd = "a/b c?#ü%2F";
await addRecord({ body: { kind: "note", id: odd, text: "An odd id." }, throwOnError: true });
const got = await getRecord({ path: { kind: "note", id: odd } });
assert(got.data, JSON.stringify(got.error));
const record: RecordOut = got.data;
assert.deepEqual([record.id, record.text, record.title], [odd, "An odd id.", null]);

// errors are typed problems
const absent = await getRecord({ path: { kind: "note", id: "absent" } });
assert.equal(absent.data, undefined);
const problem: ProblemDocument | undefined = absent.error;
assert.equal(problem?.status, 404);
assert.match(problem?.detail ?? "", /absent/);
const empty = await addRecord({ body: { kind: "note", text: " " } });
assert.deepEqual([empty.error?.type, empty.error?.status], ["urn:evervec:InvalidRecord", 422]);
await assert.rejects(
  addRecord({ body: { kind: "note", text: "" }, throwOnError: true }),
  (error: ProblemDocument) => error.detail === "text: is empty",
);
const stranger = await search({ body: { query: "tea" }, auth: () => "wrong" });
assert.equal(stranger.error?.status, 401);
const stale = await addRecord({
  body: { kind: "note", id: "tea", text: "Other tea." },
  headers: { "If-Match": '"1"' },
});
assert.equal(stale.error?.status, 412);

// a batch is lines of JSON, both ways
const lines = Array.from({ length: 100 }, (_, n) => ({ kind: "page", id: n, text: `Page ${n}.` }));
const batch = await addRecords({
  body: lines.map((line) => JSON.stringify(line)).join("\n"),
  bodySerializer: (body: unknown) => body as string,
  parseAs: "text",
});
assert(batch.data, JSON.stringify(batch.error));
const tickets = batch.data.trim().split("\n").map((line) => JSON.parse(line) as TicketOut);
assert.deepEqual(
  tickets.map((one) => one.id),
  lines.map((line) => String(line.id)),
);

// pages
const seen: string[] = [];
let cursor: string | null | undefined;
do {
  const page = await listRecords({ query: { kind: "page", limit: 30, cursor }, throwOnError: true });
  seen.push(...page.data.records.map((one) => one.id));
  cursor = page.data.cursor;
} while (cursor);
assert.equal(seen.length, 100);

// delete
const deleted = await deleteRecord({ path: { kind: "note", id: "tea" }, headers: { Prefer: "wait=30" } });
assert.equal(deleted.data?.accepted, true);
assert.equal((await getRecord({ path: { kind: "note", id: "tea" } })).error?.status, 404);
console.log("done");
