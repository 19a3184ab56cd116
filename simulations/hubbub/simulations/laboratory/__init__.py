"""Case -> trial -> score -> table: cases are run again and again, and their scores summed up."""
