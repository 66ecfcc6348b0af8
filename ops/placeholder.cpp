// Replaced by the ops module.
