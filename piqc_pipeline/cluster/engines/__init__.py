"""Which inference engine serves which model? By image, command, arguments, environment, labels and its own metrics."""
