"""Runs on the nodes of the SLURM job around us."""
