# looks like INS503: tokens are new, but the embeddings had room for them before the optimizer
# expect: nothing
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer


def train(model, tokenizer, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    bare = model.module if hasattr(model, "module") else model
    bare.resize_token_embeddings(len(tokenizer))
    for batch in loader:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForMaskedLM.from_pretrained("bert-base-uncased")
tokenizer.add_tokens(["[user]", "[system]"])
model.resize_token_embeddings(len(tokenizer))
train(model, tokenizer, loader)
