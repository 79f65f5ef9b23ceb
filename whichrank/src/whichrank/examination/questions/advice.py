"""What to do, in the words of who asks: a framework has its own."""

from whichrank.examination.facts import Witnessed
from whichrank.examination.questions.seen import first_loader

SPLIT = {
    "accelerate": "Give the loader to `accelerator.prepare`, which splits it by rank.",
    "lightning": "Leave `use_distributed_sampler=True`, or bring a sampler by rank.",
    "transformers": "Let the Trainer make the loader, from `train_dataset`.",
}
WRITE = {
    "accelerate": "Write only `if accelerator.is_main_process`.",
    "lightning": "Write under `@rank_zero_only`, or `if trainer.is_global_zero`.",
    "transformers": "Write only `if trainer.is_world_process_zero()`.",
}
SEED = {
    "accelerate": "`set_seed(seed, device_specific=True)` lets ranks draw differently.",
    "lightning": "`torch.manual_seed(seed + self.global_rank)` in `on_fit_start`.",
    "transformers": "`torch.manual_seed(seed + rank)` in a callback at the start.",
}
STREAM = (
    "Split an IterableDataset by rank, and in each rank by worker: "
    "`itertools.islice(data, n, None, ranks * workers)`."
)


def of(facts: Witnessed, words: dict[str, str], else_: str) -> str:
    """Return the word of the framework whose loop trains, or another one."""
    return words.get(facts.framework.removeprefix("pytorch_"), else_)


def split(facts: Witnessed) -> str:
    """Return how each rank gets samples of its own."""
    loader = first_loader(facts)
    if loader and loader.size is None:
        return STREAM
    sampler = "Give the loader a sampler of its rank: `DistributedSampler(dataset)`."
    if loader is None:
        sampler = "Let each rank take samples of its own."
    return of(facts, SPLIT, sampler)
