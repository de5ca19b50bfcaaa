# trap 18: a byte-order mark, cells, and a trainer of another framework
# expect: nothing
# %%
from mxnet import autograd, gluon

net = gluon.nn.Dense(1)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03})
l2 = gluon.loss.L2Loss()

# %%
for epoch in range(3):
    for features, target in data_iter:
        with autograd.record():
            loss = l2(net(features), target)
        loss.backward()
        trainer.step(10)
