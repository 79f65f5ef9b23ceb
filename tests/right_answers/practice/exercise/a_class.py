class Turns:
    def __init__(self, model, batches):
        self.model, self.batches = model, list(batches)
        self.weight = 1 / sum(len(batch) for batch in self.batches)

    def run(self):
        while self.batches:
            batch = self.batches.pop(0)
            self.model.require_backward_grad_sync = not self.batches
            (self.model(batch) * self.weight).sum().backward()
        return True


def accumulate(model, micro_batches):
    return Turns(model, micro_batches).run()
