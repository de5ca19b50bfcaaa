import torch
from torch.nn.utils import clip_grad_norm_


class DQN:
    def __init__(self, q_net, target_net):
        self.q_net = q_net
        self.target_net = target_net
        self.optimizer = torch.optim.Adam(q_net.parameters(), lr=1e-4)
        self.loss = torch.nn.SmoothL1Loss()

    def replay(self, memory, gamma=0.99):
        state, action, reward, nxt, done = memory.sample(64)
        q = self.q_net(state).gather(1, action)
        with torch.no_grad():
            best = self.target_net(nxt).max(1, keepdim=True).values
        loss = self.loss(q, reward + gamma * best * (1 - done))
        self.optimizer.zero_grad()
        clip_grad_norm_(self.q_net.parameters(), 10)  # expect: INS302
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def learn(self, memory, updates):
        for _ in range(updates):
            self.replay(memory)
