"""What runs inside each rank: of the standard library, `names` and `channels` alone."""
