raise ValueError("no")
