# looks like INS104: a method is told which agent has its turn, and each has its own optimizer
# expect: nothing
import torch
from torch import nn


class Agent:
    def __init__(self, width):
        self.critic = nn.Linear(width, width)
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)


class Team:
    def __init__(self, size, width):
        self.agents = []
        for _ in range(size):
            self.agents.append(Agent(width))

    def learn(self, x, y):
        loss = 0
        for agent in self.agents:
            loss = loss + nn.functional.cross_entropy(agent.critic(x), y)
        loss.backward()
        for number in range(len(self.agents)):
            self.update(number)

    def update(self, which):
        self.agents[which].optimizer.step()
        self.agents[which].optimizer.zero_grad()


team = Team(4, 8)
for x, y in loader:
    team.learn(x, y)
