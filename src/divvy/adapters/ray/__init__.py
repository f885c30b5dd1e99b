"""The Ray engine: runs of jobs as Ray jobs, each in a placement group of its own."""
