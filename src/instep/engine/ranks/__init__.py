"""Several processes, one update: who they are, what they tell each other, how gradients are added.

A rank gathers its window by itself. At the close every rank says what it has in one small header,
everyone decides the same from all of them, and the gradients are added up once.
"""
