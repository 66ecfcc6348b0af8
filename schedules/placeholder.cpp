// Replaced by the schedules module.
