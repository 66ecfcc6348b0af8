std::shared_ptr<const engine::Graph> graph;
std::vector<engine::Batch> data;
std::int64_t batch_size = 8, length = 16;
