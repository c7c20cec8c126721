import pytest

from embereye.process.lifecycle import UserError
from embereye.sim.script import FireScript


def test_a_fire_is_read_with_every_spelling_of_its_place():
    assert FireScript.parse("at=10,for=30,device=c1") == FireScript(10, 30, device="c1")
    assert FireScript.parse("for=30, at=1.5, camera=c1") == FireScript(1.5, 30, device="c1")
    assert FireScript.parse("at=10,for=30,zone=hall") == FireScript(10, 30, zone="hall")


@pytest.mark.parametrize("text", ["", "at=", "at=x,for=1", "at=-1", "at=nan", "for=inf", "when=3", "at=1,at=2",
                                  "device=a,zone=b", "device=a,camera=b"])  # fmt: skip
def test_a_fire_that_is_not_understood_is_refused_with_the_text(text):
    with pytest.raises(UserError) as caught:
        FireScript.parse(text)
    assert f'"{text}"' in str(caught.value)


def test_a_fire_burns_where_and_when_it_is_scripted():
    fire = FireScript(10, 5, zone="hall")
    assert fire.concerns("c1", "hall")
    assert not fire.concerns("c1", "yard")
    assert [fire.burning(seconds) for seconds in (9.9, 10, 14, 15)] == [-1, 0, 4, -1]
