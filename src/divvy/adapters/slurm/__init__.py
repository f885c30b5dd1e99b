"""Slurm: its text and JSON read, its commands run."""
