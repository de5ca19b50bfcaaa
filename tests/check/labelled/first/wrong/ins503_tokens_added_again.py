import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForMaskedLM.from_pretrained("bert-base-uncased")
tokenizer.add_tokens(["[user]"])
model.resize_token_embeddings(len(tokenizer))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)  # expect-one: INS503
tokenizer.add_tokens(["[system]"])
model.resize_token_embeddings(len(tokenizer))  # expect-one: INS503

for batch in loader:
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()
