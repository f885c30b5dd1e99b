"""Another set of ports: virtual clock and engine, traces, scenarios, measures."""
