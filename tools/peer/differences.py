# How far two computations of the same logits are apart. Rows are arrays of floats, one a position,
# one value a token of the vocabulary. Knows nothing of who computed them.
import math
import operator

RECORDED_EVERY, RECORDED_BEST = 8, 64


def best_of(row):
    return row.index(max(row))


def gap_of(row):
    """How far the most likely token is above the next."""
    first = best_of(row)
    return row[first] - max([*row[:first], *row[first + 1:]])


def deviation(rows):
    """Of a position's logits from their mean; root mean square over positions."""
    total = 0.0
    for row in rows:
        mean = sum(row) / len(row)
        total += sum(map(operator.mul, row, row)) / len(row) - mean * mean
    return math.sqrt(total / len(rows))


def divergence(row, reference):
    """Kullback-Leibler, of the row's distribution from the reference's, in nats."""
    most, most_reference = max(row), max(reference)
    weights = [math.exp(value - most_reference) for value in reference]
    total = sum(weights)
    difference = sum(map(operator.mul, weights, map(operator.sub, reference, row))) / total
    normal = sum(math.exp(value - most) for value in row)
    return difference + math.log(normal / total) + most - most_reference


def compare(rows, reference):
    """Root mean square and maximum of the differences in units of the reference's deviation, the
    mean divergence, and for each position whose most likely token differs the reference's gap."""
    if all(row == wanted for row, wanted in zip(rows, reference, strict=True)):
        return {"same_bits": True, "rms": 0.0, "max": 0.0, "divergence": 0.0, "gaps": []}
    squares = most = nats = 0.0
    gaps = []
    for row, wanted in zip(rows, reference):
        differences = list(map(operator.sub, row, wanted))
        squares += sum(map(operator.mul, differences, differences))
        most = max(most, max(differences), -min(differences))
        nats += divergence(row, wanted)
        if best_of(row) != best_of(wanted):
            gaps.append(gap_of(wanted))
    unit = deviation(reference)
    return {"same_bits": False, "rms": math.sqrt(squares / len(rows) / len(rows[0])) / unit,
            "max": most / unit, "divergence": nats / len(rows), "gaps": gaps}


def record(tokens, rows, others):
    """A selection of rows small enough to keep: the best logits of every eighth position, and how
    far `others`, rows of the same runtime with the tokens cut otherwise, are from them."""
    kept = {"tokens": tokens, "positions": list(range(RECORDED_EVERY - 1, len(rows),
                                                      RECORDED_EVERY))}
    kept["ids"] = [sorted(range(len(rows[at])), key=rows[at].__getitem__)[:-RECORDED_BEST - 1:-1]
                   for at in kept["positions"]]
    kept["logits"] = [[round(rows[at][token], 4) for token in ids]
                      for at, ids in zip(kept["positions"], kept["ids"])]
    kept["other_cut"] = against(kept, others)
    return kept


def against(kept, rows):
    """Root mean square and maximum of what rows differ by from a record, and the recorded gaps
    where the most likely token is another."""
    differences, gaps = [], []
    for at, ids, logits in zip(kept["positions"], kept["ids"], kept["logits"]):
        differences += [rows[at][token] - logit for token, logit in zip(ids, logits)]
        if best_of(rows[at]) != ids[0]:
            gaps.append(round(logits[0] - logits[1], 4))
    squares = sum(map(operator.mul, differences, differences))
    return {"rms": round(math.sqrt(squares / len(differences)), 4),
            "max": round(max(map(abs, differences)), 4), "gaps": gaps}
