"""The edge: engines, stores and tools of the outside world, each behind a port."""
