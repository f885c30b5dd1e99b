"""MIG: what a GPU can be cut into, where each slice may lie, and what the tools of a driver print about it."""
