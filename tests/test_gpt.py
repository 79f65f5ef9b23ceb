"""The model that the lessons on splitting cut: what they rely on."""

import math

import pytest
from support import Later

from ddp_lab import ROOT

gpt, torch = Later("ddp_lab.gpt"), Later("torch")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return gpt.GPT()


def test_it_begins_near_a_guess_among_all_characters(model):
    tokens, targets = gpt.batch(0)
    loss = gpt.loss_of(model(tokens), targets).item()
    assert loss == pytest.approx(math.log(96), abs=1)


def test_a_character_is_seen_only_by_those_after_it(model):
    tokens, _ = gpt.batch(0)
    changed = tokens.clone()
    changed[:, 20] = (changed[:, 20] + 1) % 96
    same = (model(tokens) == model(changed)).all(-1).all(0)
    assert same[:20].all() and not same[20:].any()


def test_it_knows_the_order_of_what_it_reads():
    # Two layers would tell it even without positions.
    model = gpt.GPT(gpt.Config(layers=1))
    tokens, _ = gpt.batch(0)
    swapped = tokens[:, [1, 0, *range(2, 32)]]
    last = model(tokens)[:, -1] - model(swapped)[:, -1]
    assert last.abs().max() > 1e-4


def test_the_text_has_a_number_for_each_character():
    text = (ROOT / "ddp_lab" / "gpt.txt").read_text()
    assert text.isascii() and len(gpt.TEXT) == len(text)
    letters = "".join("\n" if n == 0 else chr(n + 31) for n in gpt.TEXT.tolist())
    assert letters == text


def test_targets_are_the_characters_that_follow():
    tokens, targets = gpt.batch(3, size=4, time=16)
    assert tokens.shape == targets.shape == (4, 16)
    assert (tokens[:, 1:] == targets[:, :-1]).all()
    assert not (gpt.batch(4, size=4, time=16)[0] == tokens).all()


def test_embedding_and_output_are_one_weight(model):
    assert model.head.weight is model.tokens.weight
    names = [name for name, _ in model.named_parameters()]
    assert "head.weight" not in names and len(names) == 4 * 10 + 4


def test_what_is_cut_divides_by_two_three_and_four():
    sizes = gpt.Config()
    for size in (sizes.vocab, sizes.heads, sizes.width, gpt.batch(0)[0].size(0)):
        assert size % 12 == 0


def test_it_learns(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(50):
        tokens, targets = gpt.batch(step, size=6)
        loss = gpt.loss_of(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    # 2.95 nats are what the frequencies of the characters alone would give.
    assert loss.item() < 2.7
