from itertools import accumulate


class Bucket(list):
    def __init__(self, sizes, cap):
        self.sizes, self.cap = sizes, cap

    def is_full(self):
        return sum(self.sizes[weight] for weight in self) >= self.cap


def rebuild(order, sizes, cap, device):
    row = torch.tensor(order, device=device) * int(dist.get_rank() == 0)
    dist.all_reduce(row)

    def put(buckets, weight):
        if buckets[-1].is_full():
            buckets.append(Bucket(sizes, cap))
        buckets[-1].append(weight)
        return buckets

    *_, buckets = accumulate(row.tolist(), put, initial=[Bucket(sizes, cap)])
    return [list(bucket) for bucket in buckets]
