"""The type "open-string": unlisted strings, found prefix by prefix."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from hubbub.decoder.candidates import CandidateLists, list_candidates, plain_list
from hubbub.decoder.options import DecodeOptions
from hubbub.decoder.type_decoder import DecodeInput, Observer, TypeDecoder, refuse_beyond_counts
from hubbub.inference import decode_open_strings
from hubbub.protocol import Metric, OpenStringType, OptionError
from hubbub.reporting import Estimates, open_estimates

METHOD = "prefixes step by step, then least squares"


class OpenStringDecoder(TypeDecoder[OpenStringType]):
    """A search from short prefixes to whole strings, and a test of these."""

    finds_strings = True
    follows_days = False

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse maps, whole reports and days."""
        what = f"metrics.{metric.name}.type = {metric.type.name!r}"
        for name in options.given("map"):
            raise OptionError(name, f": must be left out; {what} has positions at several steps.")
        refuse_beyond_counts(options, what)

    def read_candidates(self, metric: Metric, options: DecodeOptions) -> CandidateLists:
        """Read the strings that are tested in any case, and those to learn from, if any."""
        lists, corpus = plain_list(options, metric), options.corpus
        if corpus is None:
            return lists
        learned, _ = list_candidates(corpus, None, metric.params)
        return replace(lists, corpus=tuple(learned.strings))

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:
        """Find the strings, and estimate how often each occurs."""
        options = data.options
        with observer.searching() as update:
            found = decode_open_strings(
                data.reports.counts,
                data.metric.params,
                cast("OpenStringType", data.metric.type),
                candidates=tuple(data.candidates.strings),
                below=options.extend,
                corpus=data.candidates.corpus,
                alphabet=options.alphabet,
                alpha=options.alpha,
                correction=data.correction,
                repeats=data.repeats,
                progress=update,
            )
        anomalies, detected_only, rows = data.shown
        return open_estimates(found, anomalies, data.made_by(METHOD), detected_only, rows)
