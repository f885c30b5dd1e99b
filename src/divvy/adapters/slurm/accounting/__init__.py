"""Slurm's accounting read: sacct as text and JSON, and what squeue, sinfo and scontrol add to it."""
