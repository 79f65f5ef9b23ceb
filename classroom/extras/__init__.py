"""What serves some courses: the engine imports nothing of it."""
