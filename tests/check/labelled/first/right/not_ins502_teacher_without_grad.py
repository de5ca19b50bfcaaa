# looks like INS502: the teacher is used without gradients
# expect: nothing
import torch
import torch.nn.functional as F

teacher = load_teacher("big.pt")
student = SmallNet()
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
for x in loader:
    with torch.no_grad():
        wanted = teacher(x)
    optimizer.zero_grad()
    loss = F.mse_loss(student(x), wanted)
    loss.backward()
    optimizer.step()
