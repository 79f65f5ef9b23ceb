"""What several assignments share: a harness finds here what it imports by name."""
