"""Hints for ddp_lab/clinic/patient_7.py, and an answer.

1. Who has told the ranks where to meet, before the first line of the program runs?
2. torchrun sets MASTER_ADDR and MASTER_PORT for its ranks, and listens there. Here the
   ranks overwrite both, and nothing listens at 12355.
3. Leave out the two lines that set MASTER_ADDR and MASTER_PORT.
"""


def main():
    print(f"[rank {os.environ['RANK']}] looks for the others", flush=True)
    with process_group() as (rank, world_size, device):
        total = torch.tensor(rank, device=device)  # ()
        dist.all_reduce(total)  # every rank now holds the sum of all ranks
        print(f"[rank {rank}] the sum of our ranks is {total}", flush=True)
        print(json.dumps({"total": total.item()}), flush=True)
        expected = sum(range(world_size))
        if total != expected:
            raise AssertionError(f"the sum is {total}, expected {expected}")
