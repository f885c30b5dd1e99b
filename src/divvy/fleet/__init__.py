"""The shared model of the fleet: what there is, who asks, who owns time. No I/O, no clock."""
