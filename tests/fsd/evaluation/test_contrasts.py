import pandas as pd

from fsd.data.splitting import CONTEMPORARY, LATER, MEMBER
from fsd.evaluation.contrasts import CONTRASTS, kinds_in


def test_kinds_of_a_table_of_scores():
    table = pd.DataFrame({"label": [1, 0, 0], "period": ["2022", "2022", "2024"]})
    assert kinds_in(table).tolist() == [MEMBER, CONTEMPORARY, LATER]
    assert kinds_in(table.drop(columns="period")).tolist() == [MEMBER, "non-member", "non-member"]
    kinds = {contrast.first for contrast in CONTRASTS} | {contrast.second for contrast in CONTRASTS}
    assert kinds == {MEMBER, CONTEMPORARY, LATER}
