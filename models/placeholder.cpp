// Replaced by the models module.
