"""Runs on the nodes of the SLURM job in which the lab runs."""
