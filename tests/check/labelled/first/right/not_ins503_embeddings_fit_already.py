# looks like INS503: no token is new, so that the embeddings keep their size and stay
# expect: nothing
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")
tokenizer.add_special_tokens({"pad_token": tokenizer.eos_token})
model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
model.resize_token_embeddings(len(tokenizer))

for batch in loader:
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()
