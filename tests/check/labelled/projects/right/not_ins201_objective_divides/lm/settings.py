from dataclasses import dataclass


@dataclass
class Settings:
    micro: int = 8
    updates: int = 10_000
    lr: float = 3e-4
    clip: float = 1.0
