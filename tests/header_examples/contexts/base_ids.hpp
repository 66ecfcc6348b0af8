int ranks = 2, stages = 4;
