"""Options that types refuse which are decoded from the bit counts of all days together."""

from __future__ import annotations

from hubbub.decoder.type_decoder import Job


def refuse_beyond_counts(job: Job, what: str, hashing: str) -> str | None:
    """Return why whole reports, days or kept candidates make no sense; None if none is asked for.

    Parameters
    ----------
    what : str
        The metric and its type.
    hashing : str
        What the type hashes instead of candidates alone.
    """
    if job.outputs.method == "likelihood":
        return f"--method likelihood: {what} is decoded from bit counts. Leave --method out."
    if job.outputs.by:
        return (
            f"--by {job.outputs.by}: {what} is decoded over all days at once; choose days with "
            "--since and --until."
        )
    if job.outputs.candidate_cache:
        return f"--candidate-cache: {what} {hashing}. Leave it out."
    return None
