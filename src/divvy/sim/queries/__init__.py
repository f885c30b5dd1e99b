"""Replay of queries on slices: arrivals, the hot kernel, its plain twin, and what to read off a replay."""
