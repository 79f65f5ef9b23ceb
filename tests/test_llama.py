"""The model that the lesson on fine-tuning loads: what it relies on."""

import dataclasses
import json

import pytest
from support import FULL, Later

from ddp_lab.kit import torchrun

llama, torch = Later("ddp_lab.llama"), Later("torch")
TIED = pytest.mark.parametrize("tied", [False, True])


def built(tied: bool, **sizes):
    torch.manual_seed(0)
    return llama.Llama(llama.Config(tie_word_embeddings=tied, **sizes))


def as_read(folder, tokens):
    """Return the logits of transformers' own model of a folder."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    return model.eval()(tokens).logits


@pytest.mark.processes  # it imports transformers, which takes seconds
@TIED
def test_transformers_computes_the_same_logits(tied, tmp_path):
    model = built(tied, rope_theta=500000.0, num_key_value_heads=2)
    llama.write(model, tmp_path)
    tokens = torch.randint(96, (3, 50))
    expected = llama.read(tmp_path)(tokens)
    assert (as_read(tmp_path, tokens) - expected).abs().max() < 1e-5


@pytest.mark.processes
@TIED
def test_it_reads_what_transformers_writes(tied, tmp_path):
    model = built(tied)
    llama.write(model, tmp_path)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="50KB")
    assert llama.Config.read(tmp_path / "theirs") == model.config
    tokens = torch.randint(96, (3, 50))
    ours = [llama.read(folder)(tokens) for folder in (tmp_path, tmp_path / "theirs")]
    assert torch.equal(*ours)


@FULL
@pytest.mark.processes
def test_transformers_reads_what_ranks_export(tmp_path):
    torchrun(f"--nproc-per-node 3 ddp_lab/tune/train.py --out {tmp_path}")
    tokens = torch.randint(96, (3, 50))
    expected = llama.read(tmp_path)(tokens)
    assert (as_read(tmp_path, tokens) - expected).abs().max() < 1e-5


@TIED
def test_what_is_written_is_read(tied, tmp_path):
    model = built(tied)
    llama.write(model, tmp_path, files=3)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = {path.name for path in tmp_path.glob("*.safetensors")}
    assert {*index["weight_map"].values()} == files and len(files) == 3
    assert ("lm_head.weight" in index["weight_map"]) is not tied
    found = llama.read(tmp_path)
    assert found.config == model.config
    for got, w in zip(found.parameters(), model.parameters(), strict=True):
        assert torch.equal(got, w.bfloat16().float())
    assert (found.lm_head.weight is found.model.embed_tokens.weight) is tied


def test_another_rule_of_turning_is_refused(tmp_path):
    config = dataclasses.asdict(llama.Config()) | {"rope_scaling": {"rope_type": "x"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="rope_type"):
        llama.Config.read(tmp_path)


def test_a_mask_says_who_is_seen():
    model, tokens = built(True), torch.randint(96, (1, 20))
    causal = torch.ones(20, 20, dtype=torch.bool).tril()
    assert torch.allclose(model(tokens), model(tokens, causal), atol=1e-5)
    changed = tokens.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 96
    same = (model(tokens) == model(changed)).all(-1)[0]
    assert same[:10].all() and not same[10:].any()


def test_positions_are_distances():
    # So that texts that are packed into one row need not begin at 0.
    model, text = built(True), torch.randint(96, (1, 12))
    packed = torch.cat([torch.randint(96, (1, 8)), text], 1)
    first = torch.arange(20) < 8
    mask = torch.ones(20, 20, dtype=torch.bool).tril() & (first[:, None] == first)
    assert torch.allclose(model(packed, mask)[:, 8:], model(text), atol=1e-4)


def test_sentences_are_the_same_on_every_rank_and_the_short_ones_come_first():
    rows, again, others = (llama.sentences(number, 12) for number in (0, 0, 1))
    assert all(map(torch.equal, rows, again))
    lengths = [len(row) for row in rows]
    assert lengths == sorted(lengths) and lengths != [len(row) for row in others]
    x, y = llama.padded(rows)
    assert (y != llama.NO_TARGET).sum() == sum(lengths) - 12
    assert (x[:, 1:][y[:, :-1] != llama.NO_TARGET]).equal(
        y[:, :-1][y[:, :-1] != llama.NO_TARGET]
    )
