"""What students get wrong in DDP from scratch."""

from classroom.engine.assignment import Mistake

TRAINED = "[p for p in module.parameters() if p.requires_grad]"
MISTAKES = [
    Mistake(
        "buffers keep their own values",
        "start",
        [("[*module.parameters(), *module.buffers()]", "module.parameters()")],
    ),
    Mistake(
        "a sum instead of the mean",
        "steps",
        [("mean = flat / dist.get_world_size()", "mean = flat")],
    ),
    Mistake(
        "counts numbers instead of bytes",
        "buckets",
        [("parameter.numel() * parameter.element_size()", "parameter.numel()")],
    ),
    Mistake(
        "sends everything in finish()",
        "overlap",
        [("if not self.syncing:", "if True:")],
        also=("no_sync",),
    ),
    Mistake(
        "waits in the hook",
        "overlap",
        [
            (
                "self.sent.append((flat, dist.all_reduce(flat, async_op=True)))",
                "work = dist.all_reduce(flat, async_op=True)\n"
                "        work.wait()\n"
                "        self.sent.append((flat, work))",
            )
        ],
    ),
    Mistake(
        "a raise leaves the switch off",
        "no_sync",
        [("try:\n            yield\n        finally:\n    ", "yield\n")],
    ),
    Mistake(
        "a tied weight is counted twice",
        "frozen_tied",
        [
            (
                TRAINED,
                "[\n            p\n            for layer in module.modules()\n"
                "            for p in layer.parameters(recurse=False)\n"
                "            if p.requires_grad\n        ]",
            )
        ],
    ),
    Mistake(
        "frozen parameters are sent as zeros",
        "frozen_tied",
        [
            (TRAINED, "list(module.parameters())"),
            (
                "for parameter in parameters:",
                "for parameter in parameters:\n"
                "            if not parameter.requires_grad:\n                continue",
            ),
        ],
    ),
    Mistake(
        "frozen parameters are not shared",
        "frozen_tied",
        [
            (
                "        for tensor in [*module.parameters(),",
                f"        for tensor in [*{TRAINED},",
            )
        ],
    ),
    Mistake(
        "what backward() has left out is not sent",
        "unused",
        [
            (
                "for bucket in self.buckets[len(self.sent) :]:  # backward()",
                "for bucket in []:  # backward()",
            ),
            (
                "zip(self.buckets, self.sent, strict=True)",
                "zip(self.buckets, self.sent)",
            ),
        ],
    ),
    Mistake(
        "zeros in the place of what no_sync() has gathered",
        "unused",
        [
            (
                "torch.zeros_like(p) if p.grad is None else p.grad for p in bucket",
                "p.grad if p in self.ready else torch.zeros_like(p) for p in bucket",
            )
        ],
    ),
]
