"""The audit: what an engine's own accounting says about owed and delivered GPU time. Pure."""
