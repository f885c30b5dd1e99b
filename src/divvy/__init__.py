"""Divvy, the open control plane that shares a fleet of GPUs: budgets, slices, transfers."""

__version__ = "0.1.0"
