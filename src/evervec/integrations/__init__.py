"""Ways in from other systems: imports, change streams, servers for assistants, and stores of frameworks,
which share `documents`.

Each uses the facade, and internals where a takeover needs them. Nothing imports them but the command
line and the service; their packages are extras.
"""
