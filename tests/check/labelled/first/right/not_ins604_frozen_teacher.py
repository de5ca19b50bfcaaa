# looks like INS604: only the teacher is in eval mode
# expect: nothing
import torch
import torch.nn.functional as F

teacher.eval()
opt = torch.optim.Adam(student.parameters())
for x in loader:
    with torch.no_grad():
        soft = teacher(x).softmax(1)
    opt.zero_grad()
    loss = F.cross_entropy(student(x), soft)
    loss.backward()
    opt.step()
