# trap 18: the method has another name
# expect: nothing
import paddle

optimizer = paddle.optimizer.Adam(parameters=model.parameters())
for x, y in loader:
    loss = model(x, y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
