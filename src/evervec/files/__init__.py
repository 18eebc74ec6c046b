"""Files of the user: which ones a folder has, what they are called, and the text in them.

`folder` finds files and gives each its id, `formats` reads their title and text, `places` says on which line
or page a hit is. Nothing here writes to a store; the commands `add` and `sync` do.
"""
