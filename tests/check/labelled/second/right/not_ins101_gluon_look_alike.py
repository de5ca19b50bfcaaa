# trap 18: a byte-order mark, cells, and another framework's trainer
# expect: nothing
# %%
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.Dense(10)
net.initialize()
loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

# %%
for epoch in range(10):
    total = 0.0
    for data, label in train_data:
        with autograd.record():
            loss = loss_fn(net(data), label)
        loss.backward()
        trainer.step(data.shape[0])
        total += loss.mean().asscalar()
    print(epoch, total)
