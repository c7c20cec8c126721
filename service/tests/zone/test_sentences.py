from embereye.levels import Kind
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Term
from embereye.zone.sentences import sign


def smoke(*terms):
    return EvidenceItem(
        device="c-01", kind=Kind.SMOKE.value, why=[Term(name=name, value=value) for name, value in terms]
    )


def test_smoke_that_the_network_sees_is_told_in_words():
    seen = smoke(("smoke.likeness", 93.2), ("smoke.usual", 4.1), ("smoke.growing", 9.0), ("smoke.drift.left", 2.0))
    assert sign(seen) == "smoke-like 93 % of this place, usually 4 %; growing for 9 s; drifts to the left at c-01"


def test_smoke_that_neither_grows_nor_drifts_says_only_how_smoke_like_it_is():
    assert sign(smoke(("smoke.likeness", 80.0), ("smoke.usual", 5.0))) == (
        "smoke-like 80 % of this place, usually 5 % at c-01"
    )


def test_an_area_says_its_name_value_and_limit():
    why = [Term(name="area.belt 2.1.highest", value=84, threshold=80, unit="°C")]
    item = EvidenceItem(device="s-1", kind=Kind.HEAT.value, why=why)
    assert sign(item) == "belt 2.1: highest 84 °C, limit 80 °C at s-1"
