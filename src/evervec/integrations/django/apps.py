"""The Django app: what is registered when Django starts."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.management.commands import makemigrations, migrate
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate


class EvervecConfig(AppConfig):
    """The app `evervec`."""

    name = "evervec.integrations.django"
    label = "evervec"
    verbose_name = "Evervec"

    def ready(self) -> None:
        from evervec.integrations.django.attachments import attach_as_migrated
        from evervec.integrations.django.autodetector import noticing
        from evervec.integrations.django.checks import check_attached, check_models, check_settings
        from evervec.integrations.django.stores import STORES

        for command in (makemigrations.Command, migrate.Command):
            command.autodetector = noticing(command.autodetector)
        checks.register(check_settings, "evervec")
        checks.register(check_models, checks.Tags.models)
        checks.register(check_attached, checks.Tags.database)
        post_migrate.connect(attach_as_migrated, sender=self, dispatch_uid="evervec")
        setting_changed.connect(_forget_stores, dispatch_uid="evervec")
        self.stores = STORES


def _forget_stores(*, setting: str, **_: Any) -> None:
    """Open stores again after a test has changed their settings."""
    if setting == "EVERVEC":
        from evervec.integrations.django.stores import STORES

        STORES.close()
