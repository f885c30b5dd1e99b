"""The HTTP front of the router: Open Inference Protocol in, Open Inference Protocol out."""
