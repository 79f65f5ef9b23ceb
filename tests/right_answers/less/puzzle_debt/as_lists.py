def top_one(gradient, owed):
    total = (gradient + owed).tolist()
    largest = max(total, key=abs)
    sent = [number * (number == largest) for number in total]
    return sent, [number - gone for number, gone in zip(total, sent, strict=True)]
