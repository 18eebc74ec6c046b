from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, router

from evervec.errors import EvervecError
from evervec.integrations.django.attachments import Attachments
from evervec.integrations.django.conf import Configuration
from evervec.integrations.django.copier import copy_rows
from evervec.integrations.django.declaration import searched_models
from evervec.integrations.django.stores import open_store
from evervec.runtime.threads import interrupted_by_signals


class Command(BaseCommand):
    help = (
        "Make the store follow the models: attach tables as the migrations say; or, with a "
        "separate store (EVERVEC['STORE']), copy what changed in the rows."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="Alias of the database.")
        parser.add_argument(
            "--every", type=float, metavar="SECONDS",
            help="Copy again and again, with so many seconds between.",
        )  # fmt: skip

    def handle(self, *_: Any, database: str, every: float | None, **__: Any) -> None:
        try:
            if Configuration.read().store is None:
                done = list(Attachments(database).make())
                self.stdout.write("\n".join(done) or "All tables are attached.")
                return
            self._copy(database)
            if every is not None:
                with interrupted_by_signals() as stopped:
                    while not stopped.wait(every):
                        self._copy(database)
        except EvervecError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            return

    def _copy(self, database: str) -> None:
        with open_store(database, embedder="noop") as ev:
            for model, declaration in searched_models(apps).items():
                if router.db_for_write(model) == database:
                    done = copy_rows(ev, model, declaration, database)
                    counts = f"{done.rows} rows, {done.deleted} deleted"
                    self.stdout.write(f"{model._meta.label}: {counts}")
