"""The shapes of bodies and answers, by the routes that have them: what OpenAPI shows."""
