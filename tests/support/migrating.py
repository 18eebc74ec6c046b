"""Migrations to one model after the other, in whatever state the last one is."""

import random
from collections.abc import Sequence

from evervec import Embedder, Evervec, InvalidTransition, WaitTimeout


class Migrating:
    """Somebody who cannot decide on a model."""

    def __init__(
        self, ev: Evervec, chance: random.Random, models: Sequence[str | Embedder]
    ) -> None:
        self._ev = ev
        self._models = models
        self._chance = chance
        self.told: list[str] = []

    def decide(self) -> None:
        """The next step of a migration, whichever is possible."""
        migration = self._ev.migration()
        try:
            if migration is None:
                model = self._chance.choice(self._models)
                self._ev.migrate(model, switch=self._chance.random() < 0.3)
                self.told.append(f"begun {getattr(model, 'model', model)}")
                return
            state, dice = migration.status().state, self._chance.random()
            if state == "building" and dice < 0.2:
                migration.cancel()
            elif state == "building":
                migration.wait(2.0)
                migration.switch(timeout=2.0)
            elif state == "switched":
                (migration.rollback if dice < 0.4 else migration.retire)()
            elif state == "rolled back":
                (migration.switch if dice < 0.5 else migration.cancel)()
            self.told.append(f"{state}: {migration.version} {dice:.2f}")
        except (InvalidTransition, WaitTimeout) as error:
            self.told.append(f"not now: {error}")
