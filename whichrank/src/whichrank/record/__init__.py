"""What a run leaves behind: its files, read, and the types of what is in them."""
