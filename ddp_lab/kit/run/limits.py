"""What a run may take before it is ended, and what is kept of it."""

from dataclasses import dataclass

SHORT = 20_000  # bytes of output; longer output is not shown whole, and kept in a file


@dataclass(frozen=True)
class Limits:
    """The limits of one run, passed to `torchrun` and `python`."""

    silence: float = 120.0
    """Seconds without a sign of life after which a run is ended."""
    first_sign: float = 45.0
    """Seconds until the first sign of life, if that is more than `silence`: importing
    torch on a busy machine is slow, and no hang."""
    output: int = 2_000_000_000
    """Bytes that a run may print before it is ended."""
    kept_runs: int = 5
    """Runs whose long output is kept in build/logs, this one included; 0 keeps none."""
