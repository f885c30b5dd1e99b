"""Balancers that people put before model servers today: their configurations, and the programs run."""
