def adjust(bias, wanted):
    dist.all_reduce(wanted)
    bias[wanted.argmax()] -= 0.01
    return bias
