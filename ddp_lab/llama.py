"""A small Llama, whose weights have the names that Hugging Face gives them.

    from ddp_lab.llama import Config, Llama, read, write

Decoder blocks with RMSNorm, rotary embeddings (RoPE), grouped queries and SwiGLU.
transformers reads the folders that `write` leaves, and computes the same logits.
Below the model are its files, and sentences to fine-tune it on.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from ddp_lab.gpt import TEXT, encoded


@dataclass(frozen=True)
class Config:
    """Its sizes, by the names in config.json."""

    vocab_size: int = 96  # printable ASCII, and the end of a line
    hidden_size: int = 64
    intermediate_size: int = 160
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    max_position_embeddings: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = True

    @classmethod
    def read(cls, folder: str | Path) -> "Config":
        """Return what the config.json of a folder says.

        Raises:
            ValueError: if that Llama turns by another rule than this one.
        """
        said = json.loads((Path(folder) / "config.json").read_text())
        rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
        if (kind := rope.get("rope_type", "default")) != "default":
            raise ValueError(f"rope_type is {kind!r}, and only 'default' is built here")
        said |= rope  # since transformers 5 it holds rope_theta
        said.setdefault("tie_word_embeddings", False)  # as transformers reads it
        names = {field.name for field in fields(cls)}
        return cls(**{name: said[name] for name in names & said.keys()})


class Rotary(nn.Module):
    """Turns pairs of numbers of queries and keys, the further on the faster."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("inv_freq", self.frequencies(), persistent=False)

    def frequencies(self) -> torch.Tensor:
        size = self.config.hidden_size // self.config.num_attention_heads
        return self.config.rope_theta ** -(torch.arange(0, size, 2) / size)

    def forward(self, time: int) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(time, device=self.inv_freq.device)
        angles = positions[:, None] * self.inv_freq  # (time, head_size / 2)
        angles = torch.cat([angles, angles], dim=-1)  # (time, head_size)
        return angles.cos(), angles.sin()


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return x, (..., time, head_size), with each pair turned by its angle."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    """Each position looks at itself and at those before it, in several heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.hidden_size
        self.head_size = width // config.num_attention_heads
        narrow = self.head_size * config.num_key_value_heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, narrow, bias=False)  # several queries share one
        self.v_proj = nn.Linear(width, narrow, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, angles, mask=None):  # (batch, time, width)
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )  # (batch, heads, time, head_size)
        y = F.scaled_dot_product_attention(
            turned(q, *angles),
            turned(k, *angles),
            v,
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=True,
        )
        return self.o_proj(y.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """Each position by itself: SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, wide = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, wide, bias=False)
        self.up_proj = nn.Linear(width, wide, bias=False)
        self.down_proj = nn.Linear(wide, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention and MLP, each added to what came in."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)
        self.mlp = MLP(config)

    def forward(self, x, angles, mask=None):
        x = x + self.self_attn(self.input_layernorm(x), angles, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """All of it but the head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Block(config) for _ in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config)

    def forward(self, tokens, mask=None):  # (batch, time)
        x = self.embed_tokens(tokens)  # (batch, time, width)
        angles = [each.to(x.dtype) for each in self.rotary_emb(tokens.size(1))]
        for layer in self.layers:
            x = layer(x, angles, mask)
        return self.norm(x)


class Llama(nn.Module):
    """Tokens in, for each position the logits of the next token out."""

    def __init__(self, config: Config = Config()) -> None:  # noqa: B008, it is frozen
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(weight, std=0.1)
        self.tie()

    def tie(self) -> None:
        """Let embedding and head share one weight, if the configuration says so."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def fill_buffers(self) -> None:
        """Compute what is in no file."""
        rotary = self.model.rotary_emb
        rotary.inv_freq.copy_(rotary.frequencies())

    def forward(self, tokens, mask=None):  # (batch, time)
        return self.lm_head(self.model(tokens, mask))  # (batch, time, vocab_size)


def write(model: Llama, folder: str | Path, files: int = 2) -> None:
    """Leave a model as Hugging Face does: in bf16, in several files with an index."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in model.named_parameters()  # a tied weight once
    }
    parts = [f"model-{i + 1:05}-of-{files:05}.safetensors" for i in range(files)]
    where = {name: parts[i * files // len(weights)] for i, name in enumerate(weights)}
    for part in parts:
        own = {name: weights[name] for name in weights if where[name] == part}
        save_file(own, folder / part, metadata={"format": "pt"})
    size = sum(weight.nbytes for weight in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    write_config(model.config, folder)


def write_config(config: Config, folder: str | Path) -> None:
    """Leave a config.json that says what to build."""
    said = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    text = json.dumps(said | {"dtype": "bfloat16"} | asdict(config), indent=2)
    (Path(folder) / "config.json").write_text(text)


def read(folder: str | Path) -> Llama:
    """Return the model of a folder, whole and in float32, as one process has it."""
    model, weights = Llama(Config.read(folder)), {}
    for part in sorted(Path(folder).glob("*.safetensors")):
        weights |= load_file(part)
    if model.config.tie_word_embeddings:  # then no file has the head
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model


NO_TARGET = -100  # where cross_entropy counts nothing
OTHERS = {
    "lighthouse": "observatory",
    "keeper": "watcher",
    "lamp": "lens",
    "boat": "mule",
    "row": "ride",
    "sea": "sky",
    "coast": "ridge",
}


def sentences(number: int, rows: int) -> list[torch.Tensor]:
    """Return some sentences about another trade, the shortest first, as tokens.

    Those of each `number` are other ones; they are the same on every rank.
    """
    text = "".join("\n" if n == 0 else chr(n + 31) for n in TEXT.tolist())
    for old, new in OTHERS.items():
        text = text.replace(old, new)
    lines = [line for line in text.splitlines(keepends=True) if 1 < len(line) <= 128]
    draw = torch.Generator().manual_seed(number)
    chosen = torch.randperm(len(lines), generator=draw)[:rows].tolist()
    return sorted((encoded(lines[i]) for i in chosen), key=len)


def padded(
    rows: list[torch.Tensor], device: str | torch.device = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows as one batch: tokens, and for each the one that follows or none."""
    x = torch.zeros(len(rows), max(map(len, rows)) - 1, dtype=torch.long)
    y = torch.full_like(x, NO_TARGET)
    for i, row in enumerate(rows):
        x[i, : len(row) - 1], y[i, : len(row) - 1] = row[:-1], row[1:]
    return x.to(device), y.to(device)
