"""A course made of the lab: assignments whose grades come from real runs."""
