extern engine::Trainer& trainer;
std::int64_t step = 0;
