def look_up(ids, fetch):
    distinct, place = ids.unique(return_inverse=True)
    return fetch(distinct)[place]  # autograd adds up the gradients of equal items
