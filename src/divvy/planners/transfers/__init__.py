"""Where bytes go: candidate routes, plans for many transfers at once, bounds, and the rules of others."""
