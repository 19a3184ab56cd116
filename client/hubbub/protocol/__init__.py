"""What all sides share: parameters, metric types, registry, Bloom hashing, reports and records.

docs/protocol describes it with test vectors. Importing a module costs no more than the standard
library and mmh3; only `records`, which stores and decoders use, needs numpy.
"""

from hubbub.protocol.facade import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
