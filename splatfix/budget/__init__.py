"""What a training will take: memory by phase, Gaussians and minutes, for a stack, a scene and a card.

Sums of stated parts; what no source states comes from published runs of the same family of stacks, and what nobody published is
unknown.
"""
