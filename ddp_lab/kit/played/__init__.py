"""Nodes played on this machine: their network, their torchruns, their fates."""
