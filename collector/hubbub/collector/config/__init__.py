"""The settings of the collector, where their values come from, and how they are printed."""
