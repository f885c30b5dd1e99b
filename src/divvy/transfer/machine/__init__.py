"""The pure half of a transfer: how it is cut, which rail takes which chunk, what is lost, when it ends."""
