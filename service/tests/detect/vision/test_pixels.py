import cv2
import numpy as np
import pytest

from embereye.detect.vision.pixels import regions

RNG = np.random.default_rng(11)


def masks():
    """Yield empty, full, sparse and dense masks of any shape, with regions and single pixels."""
    for number in range(400):
        most = (91, 161) if number % 4 == 0 else (12, 12)
        shape = [int(RNG.integers(1, end)) for end in most]
        mask = (RNG.random(shape) < RNG.choice([0.0, 0.02, 0.1, 0.3, 0.5, 0.9, 1.0])).astype(np.uint8)
        yield cv2.dilate(mask, np.ones((3, 3), np.uint8)) if number % 2 else 255 * mask


def test_regions_agree_with_those_of_the_whole_mask():
    for mask in masks():
        count, labels, measured, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
        ours, boxes = regions(mask)
        assert np.array_equal(ours, labels)
        assert boxes[1:] == measured[1:].tolist()
        assert len(boxes) == count


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (1, 1), (90, 160)])
def test_an_empty_mask_has_no_regions(shape):
    labels, measured = regions(np.zeros(shape, np.uint8))
    assert labels.shape == shape
    assert len(measured) == 1
