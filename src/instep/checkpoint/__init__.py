"""Checkpoints on disk: whole or not there, checked when they are read, the one before kept.

| module | what it is |
|---|---|
| `envelope` | the head of a file: what it is, how long, and its checksum   (standard library) |
| `disk` | files that appear whole or not at all, and the previous one   (standard library) |
| `locks` | one writer at a time at a path, of threads and of processes   (standard library) |
| `plain` | what may be in a checkpoint, so that reading one runs nothing |
| `files` | one file: `torch.save` in an envelope |
| `background` | writing while training goes on |
| `folders` | checkpoints of several ranks: folders, finished by a manifest |
| `shards`, `trees` | their tensors, by torch.distributed.checkpoint, and the rest |
| `failures` | what torch has gathered of errors, to each rank its own |
| `talk` | ranks that write, read and fail together |
"""
