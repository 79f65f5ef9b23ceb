"""The causes of a failure, or of a standstill: a dataclass for each, with its words.

`ended` is how ranks, or the run, have ended; `waiting` why ranks stand still; `node`
why machines do not come together; `beside` what is told in addition to one of these.
"""
