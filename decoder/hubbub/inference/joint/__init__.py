"""Tables of two or three fields: which values go together, and how sure that is."""
