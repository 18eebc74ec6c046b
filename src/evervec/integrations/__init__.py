"""Ways in from other systems: imports, and servers for assistants. Each uses the facade, and
internals where a takeover needs them."""
