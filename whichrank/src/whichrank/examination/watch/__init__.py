"""What is seen of one rank while its script trains; each module fills some facts."""
