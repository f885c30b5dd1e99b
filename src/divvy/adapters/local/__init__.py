"""The local engine: real processes on this machine, each run under a small supervisor of its own."""
