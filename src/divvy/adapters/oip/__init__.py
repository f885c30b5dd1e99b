"""The Open Inference Protocol (KServe v2 over REST): what a model wants, and how long a run takes."""
