"""Where reports live: segments of shuffled records, counts of old ones, and the batch ids seen.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP. A
name is imported when it is first used, so that a command which only knows an error, or reads a
file, waits for no database's library.
"""

from hubbub.protocol import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
