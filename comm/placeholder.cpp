// Replaced by the comm module.
