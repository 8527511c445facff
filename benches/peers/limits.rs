//! How a limit stands against the intervals of the cells that it is about. Pure.

use std::fmt;

/// A limit, and which side of it is right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) limit: f64,
    /// Whether more is better: the right side is above.
    pub(crate) more: bool,
}

impl Limit {
    fn met(self, value: f64) -> bool {
        if self.more { value >= self.limit } else { value <= self.limit }
    }

    fn clear(self, interval: Option<(f64, f64)>) -> bool {
        interval.is_some_and(|(low, high)| self.met(low) && self.met(high))
    }

    fn wrong(self, interval: Option<(f64, f64)>) -> bool {
        interval.is_some_and(|(low, high)| !self.met(low) && !self.met(high))
    }
}

/// The figure of one cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) value: f64,
    /// The interval that holds for this cell; absent where nothing is known of its spread.
    pub(crate) own: Option<(f64, f64)>,
    /// The interval that holds for all cells of the limit at once.
    pub(crate) shared: Option<(f64, f64)>,
    /// Whether the true figure is at most this one.
    pub(crate) at_most: bool,
    /// Whether it is at least this one.
    pub(crate) at_least: bool,
}

impl Point {
    /// A figure that has no spread.
    pub(crate) const fn exact(value: f64) -> Self {
        let itself = Some((value, value));
        Self { value, own: itself, shared: itself, at_most: false, at_least: false }
    }

    /// Whether `interval` of it shows that the limit is met.
    fn shows(&self, limit: Limit, interval: Option<(f64, f64)>) -> bool {
        let only_a_bound = if limit.more { self.at_most } else { self.at_least };
        !only_a_bound && limit.clear(interval)
    }

    /// Whether `interval` of it shows that the limit is not met.
    fn shows_not(&self, limit: Limit, interval: Option<(f64, f64)>) -> bool {
        let only_a_bound = if limit.more { self.at_least } else { self.at_most };
        !only_a_bound && limit.wrong(interval)
    }
}

/// Which of its cells a limit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Every,
    Some,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    Missed,
    Undecided,
}

/// How a limit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: State,
    pub(crate) cells: usize,
    /// Cells whose interval does not tell the side.
    pub(crate) crossing: usize,
    /// Cells whose figure is on the wrong side.
    pub(crate) beyond: usize,
    which: Which,
}

impl Standing {
    /// How `limit` stands; `None` without a cell.
    ///
    /// A claim about *all* cells is made only if each cell alone bears it, so each is asked at the full level and their number
    /// spoils nothing (the intersection-union test: Berger, "Multiparameter hypothesis testing and acceptance sampling",
    /// Technometrics 24 (1982) 295-300). A claim about *some* cell picks among them, so they share the level (Bonferroni).
    pub(crate) fn of(cells: &[Point], limit: Limit, which: Which) -> Option<Self> {
        if cells.is_empty() {
            return None;
        }
        let (held, missed) = match which {
            Which::Every => (
                cells.iter().all(|cell| limit.met(cell.value) && cell.shows(limit, cell.own)),
                cells.iter().any(|cell| cell.shows_not(limit, cell.shared)),
            ),
            Which::Some => (
                cells.iter().any(|cell| cell.shows(limit, cell.shared)),
                cells.iter().all(|cell| cell.shows_not(limit, cell.own)),
            ),
        };
        let state = match (held, missed) {
            (true, _) => State::Held,
            (false, true) => State::Missed,
            (false, false) => State::Undecided,
        };
        let decided = |cell: &&Point| match which {
            Which::Every => cell.shows(limit, cell.own) || cell.shows_not(limit, cell.shared),
            Which::Some => cell.shows(limit, cell.shared) || cell.shows_not(limit, cell.own),
        };
        Some(Self {
            state,
            cells: cells.len(),
            crossing: cells.len() - cells.iter().filter(decided).count(),
            beyond: cells.iter().filter(|cell| !limit.met(cell.value)).count(),
            which,
        })
    }

    /// Whether a gate fails: it is missed, or the figures say so and the intervals do not contradict.
    pub(crate) fn fails(&self) -> bool {
        let beyond = match self.which {
            Which::Every => self.beyond > 0,
            Which::Some => self.beyond == self.cells,
        };
        self.state == State::Missed || (self.state == State::Undecided && beyond)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cells, crossing, beyond, .. } = self;
        let state = match self.state {
            State::Held => "HELD",
            State::Missed => "MISSED",
            State::Undecided => "UNDECIDED",
        };
        let counts = format!("figures past it: {beyond} of {cells}, intervals across it: {crossing}");
        match (self.state, self.which) {
            (State::Held, Which::Every) => write!(f, "{state} in {cells} of {cells} cells"),
            (State::Held, Which::Some) => write!(f, "{state} by the best of {cells} cells"),
            (State::Missed, _) => write!(f, "{state}; {counts}"),
            (State::Undecided, _) => write!(f, "{state}; {counts}; more rounds decide"),
        }
    }
}
