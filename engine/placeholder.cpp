// Replaced by the engine module.
