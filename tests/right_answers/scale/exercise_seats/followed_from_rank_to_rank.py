def order(sizes, sent, machine):
    def left(names):
        total, stride = 0, 1
        for name in names[::-1]:
            n = sizes[name]
            for place in range(n):
                here, there = place * stride, (place + 1) % n * stride
                for below in range(stride):  # of one block of n strides, at each start
                    a, b = here + below, there + below
                    total += sent[name] * (a // machine != b // machine) / (n * stride)
            stride *= n
        return total

    return min(permutations(sizes), key=left)
