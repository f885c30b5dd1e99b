"""What a machine has and lacks for each part of Divvy: looked at, never changed."""
