"""Load on a server: requests sent when they are due, whatever the server does."""
