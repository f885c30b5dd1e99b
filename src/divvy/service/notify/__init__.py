"""Notifications: what happened, told to commands and webhooks, at least once and in order."""
