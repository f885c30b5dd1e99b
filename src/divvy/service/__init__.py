"""The HTTP API and the web page; both read published snapshots only."""
