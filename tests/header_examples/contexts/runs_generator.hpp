extern engine::ModelRank& model;
extern comm::Communicator& pipeline;
std::vector<std::int32_t> ids;
