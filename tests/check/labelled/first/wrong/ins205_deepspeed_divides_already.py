import deepspeed
import torch.nn.functional as F

ACCUM = 16
ds_config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": ACCUM,
    "bf16": {"enabled": True},
}
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=ds_config
)
for tokens, targets in loader:
    logits = engine(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss = loss / ACCUM  # expect-one: INS205
    engine.backward(loss)  # expect-one: INS205
    engine.step()
