class Moments:
    def __init__(self, x):
        variance, mean = torch.var_mean(x.double(), dim=0, unbiased=False)
        parts = [mean, variance + mean**2, torch.ones_like(mean)]
        self.sums = torch.vstack(parts) * len(x)

    def shared(self):
        dist.all_reduce(tensor=self.sums)
        return self

    def answer(self):
        mean, square = self.sums[:2] / self.sums[2]
        return mean.float(), (square - mean**2).float()


def batch_statistics(x):
    return Moments(x).shared().answer()
