# trap 5: the engine is stepped every time and knows itself where a window ends
# expect: nothing
import deepspeed

config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}
engine, optimizer, _, scheduler = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=config
)
for epoch in range(3):
    for batch in loader:
        outputs = engine(**batch)
        engine.backward(outputs.loss)
        engine.step()
