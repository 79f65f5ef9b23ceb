"""Runs that are sent to the machines of a SLURM cluster, or of one that is played."""
