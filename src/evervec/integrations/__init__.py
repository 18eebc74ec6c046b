"""Ways in from other systems: imports, servers for assistants, and stores of frameworks, which share
`documents`. Each uses the facade, and internals where a takeover needs them."""
