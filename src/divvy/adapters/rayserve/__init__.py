"""Ray Serve: a request router that knows slices are unequal, and replicas that say what they run on."""
