"""The figures of a run of the main job."""

from fsd.evaluation.results import CONTRASTS, Results
from fsd.reporting import figures
from fsd.reporting.report import Picture
from fsd.scores import BASE, FSD, Score, ScoreColumns, columns_of, of_state
from fsd.token_stats import FloatArray
from fsd.verdicts.calibration import Calibration

# Detectors in the figures that have a panel for each: more would be too small to be read.
DRAWN = 6


def pictures(results: Results) -> list[Picture]:
    """The figures, of the best detectors; at the root of the run, where MLflow compares them."""
    columns = columns_of(results.judged)
    drawn = [_headline_picture(results), *_pictures_of_detectors(results, columns)]
    if results.calibration:
        drawn.append(_reliability_picture(results, results.calibration))
    if results.contrasts:
        drawn.append(_contrasts_picture(results))
    return drawn


def _headline_picture(results: Results) -> Picture:
    curves = _headline_curves(results)
    chosen_on = "validation" if results.parts.validation else "these very"
    test = results.judged
    figure = figures.headline(test["label"], test["group"].tolist(), curves)
    return Picture(
        figures.png(figure),
        "How many members are found, for each share of non-members wrongly called members. The higher the curve, "
        f"the better; the dotted line is guessing. The scores were chosen on {chosen_on} texts. In the bands lies the "
        "true value at each rate in 95 of 100 cases.",
        f"Two panels of ROC curves with bands, linear and logarithmic: {'; '.join(curves)}.",
        "headline.png",
    )


def _headline_curves(results: Results) -> dict[str, tuple[FloatArray, str]]:
    """The best base score, the best fine-tuned one and `combined`, each with its AUC, and the control of the best."""
    scores = [results.best_fsd]
    if results.best_base:
        scores.insert(0, results.best_base)
    combined = Score("combined")
    if str(combined) in results.scores and combined not in scores:
        scores.append(combined)
    curves = {}
    for score in scores:
        name = results.title(score)
        if results.paired(score.detector):
            name += " (both models)"
        auc = results.rows[*score, "auc"].estimate
        column = results.judged[str(score)].to_numpy(float)
        curves[f"{name}: AUC {auc}"] = (column, _colour(results, score))
    if results.control is not None:
        of_control = results.number(results.headline, "placebo_auc")
        name = f"{results.headline_title} on the control model: AUC {of_control}"
        curves[name] = (results.control, figures.CONTROL)
    return curves


def _colour(results: Results, score: Score) -> str:
    """The colour of a score: a paired detector compares the base model and the fine-tuned one itself."""
    if results.paired(score.detector):
        return figures.BOTH
    return figures.BASE if score.state == BASE else figures.FSD


def _pictures_of_detectors(results: Results, columns: ScoreColumns) -> list[Picture]:
    """The two figures that have a panel for each of the best detectors."""
    labels = results.judged["label"]
    best = {}
    for detector in results.ranked[:DRAWN]:
        for state in results.states:
            score = Score(detector, state)
            if score in columns:
                best[score] = columns[score]
    base = of_state(best, BASE)
    fsd = of_state(best, FSD)
    which = ""
    if len(results.ranked) > DRAWN:
        left_out = len(results.ranked) - DRAWN
        chosen_on = "validation" if results.parts.validation else "test"
        which = f"The {DRAWN} best on the {chosen_on} texts; fsd.plot draws the other {left_out} from scores.parquet. "
    roc = Picture(
        figures.png(figures.roc(labels, base, fsd)),
        f"{which}Members found for each share of non-members wrongly called members, with few of these enlarged.",
        "ROC curves of the best detectors before and after fine-tuning; the areas under them are in the table.",
        "roc.png",
    )
    distributions = Picture(
        figures.png(figures.score_distributions(labels, base, fsd)),
        f"{which}Share of the members (dark) and of the non-members (grey) that have at least each score: the "
        "wider the coloured gap, the better they are distinguished. The axes leave out 1 % of the texts at either "
        "end.",
        "Cumulative distributions of the scores of members and non-members, for the best detectors, base and FSD.",
        "scores.png",
    )
    return [roc, distributions]


def _reliability_picture(results: Results, calibration: Calibration) -> Picture:
    """The p-values of the validation non-members by those of the test, which should be uniform, or larger."""
    validation = calibration.validation
    p_values = calibration.test.p_values(validation.scores)
    groups = validation.n_families
    name = results.title(calibration.score)
    figure = figures.reliability(
        name, p_values, calibration=calibration.n_families, texts=groups, colour=_colour(results, calibration.score)
    )
    return Picture(
        figures.png(figure),
        f"How often “{name}” wrongly calls a text a member: for each chosen error rate, the share of "
        "the validation non-members that those of the test call members. If the error rates are right, the whole "
        "line stays in the grey band in 95 of 100 such tests, or below it, since these texts chose the score. Above "
        "the band are more wrong calls than chosen. This figure says nothing about membership.",
        f"Share of the held-out non-members that {name} calls members, against the chosen error rate, "
        "with the band for valid error rates.",
        "reliability.png",
    )


def _contrasts_picture(results: Results) -> Picture:
    meanings = {contrast.name: (contrast.title, contrast.meaning) for contrast in CONTRASTS}
    return Picture(
        figures.png(figures.contrasts(results.rows, meanings)),
        "AUC of every detector, with 95 % intervals, by the base score, by the FSD, or by both models. On the "
        "left, what a benchmark split by time measures; in the middle, texts that the model was never trained "
        "on, distinguished by their period alone; on the right, texts of one period, some of which it was "
        "trained on. The dotted line is guessing.",
        "AUC of every detector in three comparisons of members, contemporaries and later texts; the numbers "
        "are in the tables.",
        "contrasts.png",
    )
