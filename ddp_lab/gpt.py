"""A small GPT, which the lessons on splitting a model cut in every way they teach.

    from ddp_lab.gpt import GPT, Config, batch

Decoder blocks with causal attention, learned positions, and one weight for embedding
and output. It reads the characters of gpt.txt. The layout follows nanoGPT
(https://github.com/karpathy/nanoGPT), but query, key and value have a weight each.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    """Its sizes. Those that get cut divide by 2, 3 and 4."""

    vocab: int = 96  # printable ASCII, and the end of a line
    context: int = 32  # characters that it sees at most
    layers: int = 4
    heads: int = 12
    width: int = 96
    dropout: float = 0.0


class Attention(nn.Module):
    """Each position looks at itself and at those before it, in several heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_size = config.width // config.heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.width, bias=False)
        self.value = nn.Linear(config.width, config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (batch, time, width)
        # As many heads as the weights have rows for: all of them, or one rank's.
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )  # (batch, heads, time, head_size)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """Each position by itself: four times as wide, and back."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """Attention and MLP, each added to what came in."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(config.width), Attention(config)
        self.norm2, self.mlp = nn.LayerNorm(config.width), MLP(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Characters in, for each position the logits of the next character out."""

    def __init__(self, config: Config = Config()) -> None:  # noqa: B008, it is frozen
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.head.weight = self.tokens.weight  # tied: one weight with two uses
        for name, weight in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(weight, std=config.width**-0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # (batch, time)
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)  # (batch, time, width)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # (batch, time, vocab)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over all positions, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(
    step: int, size: int = 12, time: int = 32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return batch number `step`, the same on every rank: (size, time), twice.

    The second tensor has, for each character of the first, the one that follows.
    """
    starts = torch.randint(
        len(TEXT) - time, (size,), generator=torch.Generator().manual_seed(step)
    )
    places = starts[:, None] + torch.arange(time)
    return TEXT[places], TEXT[places + 1]


def encoded(text: str) -> torch.Tensor:
    """Return a number for each character: 0 for the end of a line, else 1 to 95."""
    return torch.tensor([max(0, ord(letter) - 31) for letter in text])


TEXT = encoded(Path(__file__).with_suffix(".txt").read_text())
