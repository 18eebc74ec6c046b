from typing import Any

from evervec.errors import EvervecError
from evervec.integrations.django.attachments import Attachments
from evervec.integrations.django.management.store_command import StoreCommand


class Command(StoreCommand):
    runs = "worker"

    def handle(self, *args: Any, database: str, **options: Any) -> None:
        """Say first what the worker will not hear of."""
        try:
            missing = list(Attachments(database).missing())
        except EvervecError:
            missing = []  # the worker says why the store cannot be opened
        for trouble in missing:
            self.stderr.write(f"{trouble}: run `manage.py migrate --database {database}`")
        super().handle(*args, database=database, **options)
