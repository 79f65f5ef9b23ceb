"""Hints for ddp_lab/long/exercise_share.py, and an answer.

1. Begin with gathered keys and values. In which order do they come, and which position
   of the whole sequence does each of them have?
2. Make a tensor of the positions of rank r: those of pieces r and 2 n - 1 - r. Your
   own are for the queries; all ranks' ones, joined, are for the gathered keys.
3. A query sees a key whose position is not later, if document is the same at both:
   (mine[:, None] >= theirs) & (document[mine][:, None] == document[theirs]).
"""


def attend(q, k, v, document):
    rank, n = dist.get_rank(), dist.get_world_size()
    keys, values = ([torch.empty_like(x) for _ in range(n)] for x in (k, v))
    dist.all_gather(keys, k.contiguous())
    dist.all_gather(values, v.contiguous())
    at = torch.arange(len(document), device=q.device).chunk(2 * n)
    places = [torch.cat([at[r], at[-1 - r]]) for r in range(n)]
    mine, theirs = places[rank], torch.cat(places)
    mask = (mine[:, None] >= theirs) & (document[mine][:, None] == document[theirs])
    return F.scaled_dot_product_attention(
        q, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=mask
    )
