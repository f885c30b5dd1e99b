"""Pure parsers of what MIG tools print. Each reads one kind of text; damage is an error with its lines."""
