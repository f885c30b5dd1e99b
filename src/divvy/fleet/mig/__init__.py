"""MIG: what a GPU can be cut into, where each slice may lie, and what MIG tools print about it."""
