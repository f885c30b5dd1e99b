"""slurmrestd: one file per version of its API that makes `record` values of its answers."""
