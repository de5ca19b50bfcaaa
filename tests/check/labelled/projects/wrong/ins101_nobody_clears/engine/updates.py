def apply_gradients(optimizer):
    optimizer.step()  # expect-one: INS101
