class Cache:
    def __init__(self, ids, fetch):
        self.ids, self.place = torch.unique(ids, return_inverse=True)
        self.rows = fetch(some_ids) if (some_ids := self.ids).numel() else None

    def __call__(self):
        return nn.functional.embedding(self.place, self.rows)


def look_up(ids, fetch):
    return Cache(ids, fetch)()
