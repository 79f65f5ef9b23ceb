"""What only make calls."""
