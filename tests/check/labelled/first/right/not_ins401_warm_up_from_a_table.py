# looks like INS401: the schedule is a warm-up, which a table has under another name
# expect: nothing
import torch
import transformers


def chosen(name, updates):
    table = {
        "linear": {
            "make": transformers.get_linear_schedule_with_warmup,
            "options": {"num_warmup_steps": updates // 10, "num_training_steps": updates},
        },
        "cosine": {
            "make": transformers.get_cosine_schedule_with_warmup,
            "options": {"num_warmup_steps": updates // 20, "num_training_steps": updates},
        },
    }
    return table[name]["make"], table[name]["options"]


class Run:
    def __init__(self, model, make, options):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
        self.schedule = make(self.optimizer, **options)

    def epoch(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.schedule.step()
            self.optimizer.step()


make, options = chosen("cosine", 4000)
run = Run(model, make, options)
for _ in range(3):
    run.epoch(loader)
