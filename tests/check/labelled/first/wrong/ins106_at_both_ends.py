import torch
import torch.nn.functional as F


class Distiller:
    def __init__(self, student, teacher):
        self.student, self.teacher = student, teacher.eval()
        self.optim = torch.optim.AdamW(student.parameters(), lr=5e-5)

    def epoch(self, loader):
        for ids in loader:
            self.optim.zero_grad()  # expect-one: INS106
            with torch.no_grad():
                soft = self.teacher(ids).softmax(-1)
            loss = F.kl_div(self.student(ids).log_softmax(-1), soft, reduction="batchmean")
            loss.backward()
            self.optim.step()
            self.optim.zero_grad()  # expect-one: INS106
