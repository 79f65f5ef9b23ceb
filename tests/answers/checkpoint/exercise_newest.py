# %% wrong: sound is what has no zeros
def newest_whole(parts):
    mine = set()
    for step, path in parts.items():
        try:
            if torch.load(path, weights_only=True)["part"].all():
                mine.add(step)
        except Exception:
            pass
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return max(set.intersection(*everyone))


# %% wrong: no zeros in the second half
CHANGES = {
    "if zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None:": (
        "try:\n            part = torch.load(path, weights_only=True)['part']"
    ),
    "mine.add(step)": (
        "if part[len(part) // 2 :].all():\n                mine.add(step)\n"
        "        except Exception:\n            pass"
    ),
}


# %% wrong: sound is what loads
CHANGES = {
    "if zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None:": (
        "try:\n            torch.load(path, weights_only=True)"
    ),
    "mine.add(step)": "mine.add(step)\n        except Exception:\n            pass",
}


# %% wrong: the oldest of the newest
CHANGES = {
    "mine = set()": "mine = 0",
    "mine.add(step)": "mine = max(mine, step)",
    "return max(set.intersection(*everyone))": "return min(everyone)",
}


# %% right: rank 0 decides
class Part:
    def __init__(self, step, path):
        self.step, self.path = step, path

    def is_sound(self):
        if not zipfile.is_zipfile(self.path):
            return False
        with zipfile.ZipFile(self.path) as archive:
            return archive.testzip() is None


def newest_whole(parts):
    sound = {step for step, path in parts.items() if Part(step, path).is_sound()}
    told = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(sound, told, dst=0)
    answer = [max(step for step in parts if all(step in each for each in told or []))]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]
