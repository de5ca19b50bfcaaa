import torch
from torch import nn


class Distiller:
    def __init__(self, student, teacher, d_student, d_teacher):
        self.student = student
        self.teacher = teacher.eval().requires_grad_(False)
        self.project = nn.Linear(d_student, d_teacher)  # expect-one: INS502
        self.optimizer = torch.optim.Adam(self.student.parameters(), 1e-4)  # expect-one: INS502

    def step(self, x):
        with torch.no_grad():
            wanted = self.teacher(x)
        got = self.project(self.student(x))
        loss = nn.functional.mse_loss(got, wanted)
        self.optimizer.zero_grad()
        loss.backward()  # expect-one: INS502
        self.optimizer.step()  # expect-one: INS502
        return loss.item()

    def fit(self, loader):
        self.student.train()
        return [self.step(x) for x in loader]
