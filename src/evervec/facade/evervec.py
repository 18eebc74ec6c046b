"""Evervec: records, and the operation of a store: workers, models, files, tables, verify."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from copy import copy
from os import PathLike

from evervec.embedders.base import AsyncEmbedder, Embedder
from evervec.errors import InvalidArgument
from evervec.facade.dry_run import with_estimate
from evervec.facade.observation import ObservationMethods
from evervec.facade.records import RecordMethods
from evervec.model.findings import VerifyReport
from evervec.model.reports import (
    Backfill,
    Estimate,
    Exported,
    Imported,
    ImportedVectors,
    ProcessResult,
)
from evervec.model.usage import Limits, Usage
from evervec.opening import open_embedder
from evervec.records.drafts import check_given, check_name
from evervec.stores.notes import Episode
from evervec.tables.base import AttachedTable, Attachment, attachment
from evervec.transfer.export import Exporter
from evervec.transfer.loader import Loader
from evervec.transfer.pending import PendingTexts, VectorImport
from evervec.verify.verify import verify
from evervec.versions.estimate import estimate
from evervec.versions.migration import Migration
from evervec.worker.worker import Worker


class Evervec(RecordMethods, ObservationMethods, AbstractContextManager["Evervec"]):
    """The records of one tenant, kept in sync with a vector index. Created by `evervec.open`."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def of(self, tenant: str) -> Evervec:
        """The same store, index, embedder and kinds for another tenant. Close only the original,
        not this view."""
        check_name("tenant", tenant)
        view = copy(self)
        view._use_tenant(tenant)
        return view

    # files
    def export(
        self,
        path: str | PathLike[str],
        kind: str | None = None,
        vectors: bool = True,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Exported:
        """Write the tenant's records, with the vectors of those that are embedded, to a Parquet
        file. It appears under its name when it is complete. Boxed records are left out."""
        check_given(kind=kind)
        exporter = Exporter(self.store, self.index, self.tenant)
        return exporter.export(path, kind, vectors=vectors, progress=progress)

    def import_(
        self,
        path: str | PathLike[str],
        *,
        overwrite: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> Imported:
        """Save the records of an exported file. Vectors of this store's model are taken over, other
        records are embedded. A record that is newer here, or was deleted since, is skipped, unless
        `overwrite` is set. An import that was interrupted can be repeated."""
        loader = Loader(
            self.store, self.settings, self.tenant, self.models, self.attachments,
            self.pipeline.served.target_of,
        )  # fmt: skip
        return loader.load(path, overwrite=overwrite, progress=progress)

    def export_pending(
        self,
        path: str | PathLike[str],
        kind: str | None = None,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Exported:
        """Write the tenant's texts that wait to be embedded to a Parquet file, to embed them
        elsewhere; `import_vectors` brings the vectors back. Nothing is claimed: workers go on."""
        check_given(kind=kind)
        return PendingTexts(self.store, self.pipeline, self.tenant).export(path, kind, progress)

    def import_vectors(
        self,
        path: str | PathLike[str],
        *,
        progress: Callable[[int], object] | None = None,
    ) -> ImportedVectors:
        """Write the vectors of texts that `export_pending` wrote: `path` is a Parquet file, or a
        folder of them, with a column `vectors` beside the exported ones. A record that changed
        since is refused and stays in the queue. Can be repeated, and runs beside workers."""
        importing = VectorImport(self.store, self.pipeline, self.tenant, self.settings)
        done = importing.run(path, progress)
        self.index.maintain(0.0)  # large indexes are built now, not while they grow
        return done

    # usage and limits
    def usage(self) -> Usage:
        """The tenant's usage, including today's, and its limits. This is cheap: the sums are
        maintained with every change."""
        return self.store.tenants.usage(self.tenant)

    def limits(self) -> Limits:
        """The limits set for this tenant; None where the settings `tenant_…` apply."""
        return self.store.tenants.own_limits(self.tenant)

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits of the tenant. Existing data is kept, even beyond the limits."""
        self.store.tenants.set_limits(self.tenant, limits)

    # another model
    def migrate(
        self,
        embedder: str | Embedder | AsyncEmbedder,
        *,
        version: str | None = None,
        kind: str | None = None,
        switch: bool = False,
    ) -> Migration:
        """Migrate to another model without downtime: workers build its vectors beside the old
        ones. They serve after `migration.switch()`, or with `switch=True` as soon as they are
        complete and verified. The same call again continues the same migration. `version`: name
        of the new version; `kind`: only this kind."""
        check_given(version=version, kind=kind)
        made, _ = open_embedder(embedder, self.store, self.settings)
        name = self._lifecycle.begin(made, version, kind, switch=switch)
        return Migration(self._lifecycle, name)

    def migration(self) -> Migration | None:
        """The migration that is in progress or can still be rolled back."""
        name = self._lifecycle.current()
        return None if name is None else Migration(self._lifecycle, name)

    def estimate(
        self,
        embedder: str | Embedder | AsyncEmbedder,
        *,
        kind: str | None = None,
        all_tenants: bool = False,
    ) -> Estimate:
        """The cost of `migrate` for the tenant's records, estimated from a sample that is embedded
        once; `all_tenants`: for the whole store, which is what `migrate` changes."""
        made, _ = open_embedder(embedder, self.store, self.settings)
        return estimate(
            self.store, self.models.add(made), self._kinds, self.settings.concurrency, kind,
            None if all_tenants else self.tenant,
        )  # fmt: skip

    def drop_retired(self) -> None:
        """Drop the vectors of retired versions now, not when a worker gets to it."""
        self._lifecycle.drop_retired()

    # working
    def process_all(self, progress: Callable[[int], object] | None = None) -> ProcessResult:
        """Process jobs until none is due. Jobs that are scheduled for later or claimed by other
        workers remain; in an outage, or without an embedder, jobs stay pending. `progress` is
        called with the number of ended jobs."""
        return self.worker().process_all(progress)

    def worker(self, concurrency: int | None = None) -> Worker:
        """A worker for a `with` block: it runs in the background and is drained at the end."""
        if concurrency is not None and concurrency < 1:
            raise InvalidArgument(f"concurrency must be at least 1, not {concurrency}")
        return Worker(self.pipeline, self._upkeep(), self.settings, concurrency)

    def run_worker(self, concurrency: int | None = None) -> None:
        """Process jobs until SIGTERM or SIGINT, then drain; a second signal stops at once."""
        self.worker(concurrency).run_until_signalled()

    def backfill(
        self,
        kind: str | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> Backfill:
        """Enqueue records without current vectors, behind all live work: after a change of chunker
        or template, or a cancelled job. It covers all tenants, as workers do. `dry_run`: only
        estimate; `progress` is called with the number of records checked."""
        check_given(kind=kind)
        return self._backfiller.run(kind, dry_run=dry_run, progress=progress)

    def alerts(self) -> list[Episode]:
        """The raised alerts as of the last housekeeping of any process."""
        return self._housekeeping.alerts.lasting()

    # tables of the application
    def attach(
        self,
        table: str,
        *,
        text: str | Iterable[str],
        kind: str | None = None,
        id: str | Iterable[str] = "id",
        metadata: Iterable[str] = (),
        title: str | None = None,
        weight: str | None = None,
        updated_at: str | None = None,
        tenant: str | None = None,
        replace: bool = False,
        dry_run: bool = False,
    ) -> Attachment:
        """Index a table of the store's database and keep it in sync: its rows become records of
        `kind`, which is the table's name if it is not given.

        Triggers log every change in the transaction of the writer, whatever program that is;
        workers enqueue existing rows, behind live changes. `text`: a column, several columns, or a
        template such as `"{title}: {body}"`. `updated_at`: the column with the time of the last
        change, from which the age of a record runs. `tenant`: the column with the tenant.
        `dry_run`: change nothing; the result has the statements as `.sql` and the cost as
        `.estimate`. Records of the kind that are not rows of the table are deleted: a kind with
        records from other sources is rejected, unless `replace` is set.
        """
        wanted = attachment(
            table, kind, id, text, metadata,
            title=title, weight=weight, updated_at=updated_at, tenant=tenant, owner=self.tenant,
        )  # fmt: skip
        planned = self.attachments.attach(wanted, dry_run=dry_run, replace=replace)
        return self._estimated(planned) if dry_run else planned

    def attach_again(
        self,
        table: str | Attachment | None = None,
        *,
        to: str | None = None,
        dry_run: bool = False,
    ) -> list[Attachment]:
        """Attach a table, a kind, or one `attachment` of `tables()` with what was given to `attach`
        before, after it was rebuilt, renamed or lost its triggers; None: all tables that are no
        longer as they were attached.
        Workers then compare all of its rows: what changed meanwhile is embedded, nothing else.

        `to`: the table's new name; not needed if it was renamed with its triggers. A column that
        is gone must be replaced with `attach`: the error names it. With None, one table that
        cannot be attached does not stop the others; the first error is raised at the end.
        """
        planned = self.attachments.attach_again(table, to=to, dry_run=dry_run)
        return [self._estimated(one) for one in planned] if dry_run else planned

    def _estimated(self, planned: Attachment) -> Attachment:
        assert self.attachments.source is not None
        return with_estimate(planned, self.attachments.source, self.models, self.settings)

    def tables(self) -> list[AttachedTable]:
        """The attached tables, what was given for each, and whether each is still followed."""
        embedded: Counter[str] = Counter()
        for version in self.versions(all_tenants=True):
            embedded[version.kind] += version.items if version.state == "serving" else 0
        return self.attachments.tables(embedded)

    def detach(self, table: str, *, keep_records: bool = False) -> int:
        """Stop indexing a table (or kind): drop its triggers, and delete its records unless kept;
        returns the number of deleted records."""
        return self.attachments.detach(table, keep=keep_records)

    def verify(
        self,
        repair: bool = False,
        *,
        quick: bool = False,
        all_tenants: bool = False,
        kind: str | None = None,
        faults: Iterable[str] | None = None,
        progress: Callable[[int], object] = lambda _: None,
    ) -> VerifyReport:
        """Compare the index with the records, and the records with attached tables. Safe while
        workers run.

        `report.clean`: no faults were found. `report.complete`: also nothing is waiting, failed or
        unchecked, so the index holds exactly the latest version of every record. `repair` removes
        orphaned points, enqueues missing and stale records, and attaches tables again that lost
        their triggers. `quick` does not compare the records' texts. `kind`: check only this kind;
        an empty one means vectors of versions that the store does not know. `faults`: repair only
        records with one of these, such as `["stale"]`; all faults are reported. `progress` is
        called with the number of records checked.
        """
        if kind:
            check_given(kind=kind)
        return verify(
            self.store, self.index, self.attachments, self.pipeline.served.cutter_of,
            None if all_tenants else self.tenant, repair=repair, quick=quick, kind=kind,
            faults=faults, progress=progress,
        )  # fmt: skip
