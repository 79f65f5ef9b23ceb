"""From what a run left behind to what happened: which rank, at which line, why."""
