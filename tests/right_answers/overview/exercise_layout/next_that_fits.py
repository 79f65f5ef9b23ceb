def layout(parameters, layers, width, tokens, machines):
    training = parameters, layers, width, tokens

    def fitting(tensor):
        for pipeline in (p for p in range(1, layers + 1) if layers % p == 0):
            data, rest = divmod(8 * machines, tensor * pipeline)
            split = data, tensor, pipeline
            if rest == 0 and memory(split, *training) <= 80e9:
                yield split

    shortest = [next(fitting(2**power), None) for power in range(4)]
    return min(filter(None, shortest), key=lambda split: seconds(split, *training))
