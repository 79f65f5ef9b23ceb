"""Hints for ddp_lab/checkpoint/exercise.py, and an answer.

1. Go through what Run creates in __init__. Which of these objects change from step to
   step, and are not in checkpoint()?
2. Three are missing: one sets the learning rate, one averages the weights, and one is
   where the noise is drawn from.
3. Return a dictionary with the keys "scheduler", "average" and "noise". The first two
   have a state_dict(), the generator has get_state().
"""


def forgotten(run):
    return {
        "scheduler": run.scheduler.state_dict(),  # where on its curve the rate is
        "average": run.average.state_dict(),
        "noise": run.noise.get_state(),  # a random state outside the global one
    }
