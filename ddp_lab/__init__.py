"""The programs of DDP Lab and, in `ddp_lab.kit`, what the notebooks run them with."""


def load_ipython_extension(shell):
    """Let `%load_ext ddp_lab` add %torchrun and %python, and go to the root folder."""
    from ddp_lab.kit import magics

    magics.load(shell)
