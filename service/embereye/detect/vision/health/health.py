"""Health of a camera's pictures: frozen, black, white, overexposed, covered, blurred, moved.

It neither finds nor silences fire: while fire is suspected, a changed scene is no fault.

Twice a second `observe` checks for black, white and blank pictures. Once a second it also compares the picture with
learned views (`_compare`): several, because a camera may turn between presets. Each problem is a `_Lasting` condition,
which becomes a fault only after some seconds. A new scene that lasts for ten minutes becomes a view.
"""

import math

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.health.shift import shift_between
from embereye.detect.vision.health.view import Agreement, Field, Grey, Impression, View, block_shape, edges_of
from embereye.detect.vision.thresholds import HealthThresholds
from embereye.units import MINUTE, SECOND


class _Lasting:
    """A condition that counts after it has lasted, until it has been absent for a while."""

    def __init__(self, begin_ns: int, end_ns: int) -> None:
        self._begin_ns, self._end_ns = begin_ns, end_ns
        self._since_ns = self._seen_ns = -1
        self.active = False

    def see(self, present: bool, now_ns: int) -> bool:
        """Update the condition and return True if it counts at `now_ns`."""
        if present:
            self._seen_ns = now_ns
            if self._since_ns < 0:
                self._since_ns = now_ns
            self.active = self.active or now_ns - self._since_ns >= self._begin_ns
        elif self._since_ns >= 0 and (not self.active or now_ns - self._seen_ns >= self._end_ns):
            self._since_ns, self.active = -1, False
        return self.active


class _Change:
    """The times at which each block of a picture last changed in any bit."""

    def __init__(self) -> None:
        self._before: Grey | None = None
        self._changed: npt.NDArray[np.int64] = np.zeros((0, 0), np.int64)  # nanoseconds

    def observe(self, grey: Grey, now_ns: int) -> npt.NDArray[np.int64]:
        """Return the nanoseconds since each block changed."""
        before, self._before = self._before, grey
        if before is None or before.shape != grey.shape:
            self._changed = np.full(block_shape(grey.shape), now_ns, np.int64)
        else:
            # Compare before averaging: a difference of a single count must not be rounded away.
            different = cv2.compare(before, grey, cv2.CMP_NE)
            size = self._changed.shape[::-1]
            self._changed[cv2.resize(different, size, interpolation=cv2.INTER_AREA) > 0] = now_ns
        return now_ns - self._changed


class _Movement:
    """Detects that the picture shifts as a whole."""

    def __init__(self, limits: HealthThresholds) -> None:
        self.fault = ""  # no fire shifts a whole picture, so it is reported even while one is suspected
        self._limits = limits
        self._lasting = _Lasting(limits.moving_ns, limits.recovered_ns)
        self._edges: Field | None = None  # of the latest picture

    def forget(self) -> None:
        """Start again with the next picture."""
        self.fault, self._edges = "", None

    def observe(self, grey: Grey, now_ns: int, elapsed: int) -> None:
        """Check if the picture has shifted since the one `elapsed` nanoseconds ago."""
        limits, before = self._limits, self._edges
        self._edges = edges_of(grey)
        speed = 0.0
        if before is not None and 0 < elapsed <= limits.shift_gap_ns:
            speed = shift_between(before, self._edges, limits) * SECOND / elapsed
        if not self._lasting.see(speed >= limits.speed_min, now_ns):
            self.fault = ""
        elif speed:
            self.fault = (
                f"camera moves: the picture shifts by {speed:.0%} of its width a second;"
                " flames and smoke cannot be recognised meanwhile"
            )


class _Views:
    """The views of a camera, learned from its pictures, and a scene that may become one."""

    def __init__(self, limits: HealthThresholds) -> None:
        self.candidate: View | None = None
        self._limits = limits
        self._views: list[View] = []  # most recently seen first

    def __bool__(self) -> bool:
        return bool(self._views)

    def forget(self) -> None:
        """Start again with the next picture."""
        self._views.clear()
        self.candidate = None

    def add(self, view: View) -> None:
        """Add `view` as the most recently seen one."""
        self._views = [view, *self._views[: self._limits.views - 1]]

    def best(self, seen: Impression) -> tuple[View, Agreement]:
        """Return the view that fits `seen` best and move it to the front."""
        edges = seen.edges
        compared = [(view, view.compare(seen, edges, self._limits)) for view in self._views[:1]]
        if compared[0][1].place < self._limits.steady_min:
            compared += [(view, view.compare(seen, edges, self._limits)) for view in self._views[1:]]
        view, agreement = max(compared, key=lambda pair: pair[1].place)
        if view is not self._views[0] and agreement.place >= self._limits.place_min:
            self._views.remove(view)
            self._views.insert(0, view)
        return view, agreement

    def consider(self, seen: Impression, now_ns: int) -> None:
        """Learn a scene that matches no view; if it lasts, it becomes a view."""
        known = self.candidate
        if known is None or known.compare(seen, seen.edges, self._limits).place < self._limits.steady_min:
            self.candidate = View(seen, now_ns)
            return
        known.learn(seen, now_ns, self._limits)
        if known.age_ns(now_ns) >= self._limits.accepted_ns:
            self.add(known)
            self.candidate = None

    def remaining(self, now_ns: int) -> str:
        """Return when the candidate becomes a view, for a fault, or ''."""
        if self.candidate is None:
            return ""
        minutes = math.ceil((self._limits.accepted_ns - self.candidate.age_ns(now_ns)) / MINUTE)
        return f"; if it stays it becomes the reference in {max(1, minutes)} min"


class PictureHealth:
    """Monitors one camera. Feed it whole pictures, two per second; times are nanoseconds of a monotonic clock.

    If no whole pictures arrive, call `glance` with damaged ones.
    """

    def __init__(self) -> None:
        self.limits = limits = HealthThresholds()
        self._change = _Change()
        self._blind = _Lasting(limits.blind_ns, 0)
        self._exposed = _Lasting(limits.exposure_ns, limits.recovered_ns)
        self._bare = _Lasting(limits.covered_ns, limits.recovered_ns)
        self._covered = _Lasting(limits.covered_ns, limits.recovered_ns)
        self._blurred = _Lasting(limits.focus_ns, limits.recovered_ns)
        self._moved = _Lasting(limits.moved_ns, limits.recovered_ns)
        self._movement = _Movement(limits)
        self._checked_ns = self._whole_ns = self._compared_ns = -(10**18)
        self._damaged_since_ns = 0  # since when all pictures are damaged; 0: whole ones arrive
        self._frozen_fault = self._scene_fault = ""
        self._shape: tuple[int, ...] = ()
        self._seen: Impression | None = None
        self._views = _Views(limits)
        self.patience_ns = 0  # how long a camera may show the same picture: its deadline
        self.fault = ""  # why the picture cannot show a fire; empty: it can

    def is_due(self, now_ns: int, *, damaged: bool = False) -> bool:
        """True if the next check is due; for a `damaged` picture, only if no whole one has come for a while."""
        if damaged and 0 <= now_ns - self._whole_ns < self.limits.whole_ns:
            return False
        return not 0 <= now_ns - self._checked_ns < self.limits.period_ns

    @property
    def unseen(self) -> str:
        """Return which checks are impossible because no whole picture arrives, or ''."""
        since_ns = self._damaged_since_ns
        if not since_ns or self._checked_ns - since_ns < self.limits.damaged_ns:
            return ""
        return "no whole picture arrives, so a frozen, covered, blurred or moved picture goes unnoticed"

    def glance(self, frame: npt.NDArray[np.uint8], lost: npt.NDArray[np.bool_], now_ns: int) -> str:
        """Check the pixels of `frame` that are not `lost`, and return the fault that they show."""
        self._checked_ns = now_ns
        self._damaged_since_ns = self._damaged_since_ns or now_ns
        grey = frame if frame.ndim == 2 else cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        around = cv2.dilate(lost.view(np.uint8), np.ones((3, 3), np.uint8))  # lost pixels affect their neighbours
        if (arrived := grey[around == 0]).size:
            nothing = self._nothing(arrived)
            blind = self._blind.see(bool(nothing), now_ns)
            self.fault = nothing if blind else self._frozen_fault or self._movement.fault or self._scene_fault
        return self.fault

    def observe(self, frame: npt.NDArray[np.uint8], now_ns: int, *, suspected: bool = False) -> str:
        """Check `frame` (working size; BGR or grey) and return the fault, or ''. `suspected`: fire is, now."""
        self._checked_ns = self._whole_ns = now_ns
        self._damaged_since_ns = 0
        grey: Grey = frame if frame.ndim == 2 else cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)  # type: ignore[assignment]
        if grey.shape != self._shape:
            self._begin(grey)
        nothing = self._nothing(grey)
        blind = self._blind.see(bool(nothing), now_ns)
        elapsed = now_ns - self._compared_ns
        if not 0 <= elapsed < self.limits.compare_ns:
            self._compared_ns = now_ns
            self._scene_fault = self._compare(grey, now_ns, elapsed, suspected=suspected, visible=not nothing)
        else:
            if self._frozen_fault:  # its end is reported at once
                self._frozen_fault = self._frozen(grey, now_ns)
            if suspected:
                self._excuse(now_ns)
        self.fault = nothing if blind else self._frozen_fault or self._movement.fault or self._scene_fault
        return self.fault

    def _compare(self, grey: Grey, now_ns: int, elapsed: int, *, suspected: bool, visible: bool) -> str:
        """Return the problem of the scene, or ''."""
        assert self._seen is not None
        self._movement.observe(grey, now_ns, elapsed)
        elapsed = min(max(0, elapsed), 2 * self.limits.compare_ns)
        self._seen.add(grey, -math.expm1(-elapsed / self.limits.impression_ns))
        self._frozen_fault = self._frozen(grey, now_ns)
        if suspected:
            self._excuse(now_ns)
        # An empty picture cannot be compared or learned.
        elif visible and not self._frozen_fault:
            return self._exposure(grey, now_ns) or self._comparison(now_ns)
        return ""

    def _begin(self, grey: Grey) -> None:
        self._shape = grey.shape
        self._seen = Impression(grey)
        self._views.forget()
        self._movement.forget()
        self._frozen_fault = self._scene_fault = ""

    def _excuse(self, now_ns: int) -> None:
        self._scene_fault = ""
        for condition in (self._exposed, self._bare, self._covered, self._blurred, self._moved):
            condition.see(present=False, now_ns=now_ns)

    def _nothing(self, grey: Grey) -> str:
        limits = self.limits
        few = limits.lit_share * grey.size
        if np.count_nonzero(grey >= limits.black_level) < few:
            return "picture black"
        if np.count_nonzero(grey < limits.white_level) < few:
            return "picture white"
        if float(cv2.meanStdDev(grey)[1][0, 0]) < limits.blank_deviation:
            return "picture blank"
        return ""

    def _frozen(self, grey: Grey, now_ns: int) -> str:
        limits = self.limits
        still = self._change.observe(grey, now_ns)
        shortest = int(still.min())
        if shortest > max(limits.frozen_ns, self.patience_ns):
            return f"picture frozen: exactly the same for {shortest / SECOND:.0f} s"
        share = np.count_nonzero(still <= max(limits.overlay_ns, self.patience_ns)) / still.size
        if share <= limits.overlay_share:
            return f"picture frozen behind an overlay: {1 - share:.0%} of it has not changed for half a minute"
        return ""

    def _exposure(self, grey: Grey, now_ns: int) -> str:
        limits = self.limits
        clipped = int(np.count_nonzero(grey >= limits.clipped_level)) / grey.size
        if self._exposed.see(clipped > limits.clipped_share, now_ns):
            return f"overexposed: {clipped:.0%} of the picture is clipped to white"
        return ""

    def _comparison(self, now_ns: int) -> str:
        limits, seen = self.limits, self._seen
        assert seen is not None
        bare = bool(np.count_nonzero(seen.structure > limits.structure_min) < limits.bare_share * seen.detail.size)
        if self._bare.see(bare and seen.level >= limits.dark_level, now_ns):
            return "lens covered or out of focus: the picture has no structure"
        if not self._views:
            if not bare:
                self._views.add(View(seen, now_ns))
            return ""
        view, agreement = self._views.best(seen)
        if view.age_ns(now_ns) < limits.established_ns:
            view.learn(seen, now_ns, limits)
            return ""
        dark = seen.level < limits.dark_level and seen.level < limits.dark_ratio * view.level
        covered = not dark and agreement.lost > limits.lost_share
        elsewhere = agreement.place < limits.place_min
        blurred = not dark and not covered and agreement.sharpness < limits.sharpness_min
        blurred = blurred and agreement.place > limits.blurred_place_min
        moved = elsewhere and not (dark or covered or blurred)
        counted = (
            self._covered.see(covered, now_ns), self._blurred.see(blurred, now_ns), self._moved.see(moved, now_ns)
        )  # fmt: skip
        if elsewhere and not (covered or blurred or bare):
            self._views.consider(seen, now_ns)
        else:
            self._views.candidate = None
            if not (dark or covered or blurred):
                view.learn(seen, now_ns, limits)
        return self._scene_problem(counted, agreement, now_ns)

    def _scene_problem(self, counted: tuple[bool, bool, bool], agreement: Agreement, now_ns: int) -> str:
        covered, blurred, moved = counted
        if covered:
            return f"lens covered or sprayed: {agreement.lost:.0%} of the scene's structure is gone"
        if blurred:
            return f"out of focus: {agreement.sharpness:.0%} of the usual detail is left"
        if moved:
            return f"camera moved: the scene is not the learned one{self._views.remaining(now_ns)}"
        return ""
