"""How long things take: latency profiles and transfer costs."""
