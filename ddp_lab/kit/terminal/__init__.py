"""The lab in a terminal, for programs that are not the lab's: the command `ddp-lab`."""
