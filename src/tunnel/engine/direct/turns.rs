//! First come, first served.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A value that one thread at a time uses, in the order in which they asked. A mutex alone lets in who has just left before
/// who waits has woken up: a stream that sends without a pause would keep a probe out as long as it lasts.
pub(super) struct Turns<T> {
    line: Mutex<Line>,
    moved: Condvar,
    value: Mutex<T>,
}

#[derive(Default)]
struct Line {
    /// The ticket of who comes next.
    next: u64,
    /// The ticket whose turn it is.
    serving: u64,
}

/// Ends a turn, also when it panics.
struct Turn<'a, T>(&'a Turns<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut line = self.0.line();
        line.serving += 1;
        if line.next != line.serving {
            self.0.moved.notify_all();
        }
    }
}

impl<T> fmt::Debug for Turns<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}

impl<T> Turns<T> {
    pub(super) fn new(value: T) -> Self {
        Self { line: Mutex::default(), moved: Condvar::new(), value: Mutex::new(value) }
    }

    /// Waits for its turn and uses the value.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut line = self.line();
        let ticket = line.next;
        line.next += 1;
        while line.serving != ticket {
            line = self.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        drop(line);
        let _turn = Turn(self);
        work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn whoever_never_pauses_lets_others_in() {
        let turns = Arc::new(Turns::new(0_u64));
        let done = Arc::new(AtomicBool::new(false));
        let busy = {
            let (turns, done) = (Arc::clone(&turns), Arc::clone(&done));
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    turns.with(|count| {
                        *count += 1;
                        thread::sleep(Duration::from_millis(1));
                    });
                }
            })
        };
        let begin = Instant::now();
        for _ in 0..20 {
            turns.with(|count| *count += 1);
            // So that the other one is at it again.
            thread::sleep(Duration::from_millis(2));
        }
        let took = begin.elapsed();
        done.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        assert!(took < Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn a_turn_that_panics_ends() {
        let turns = Turns::new(());
        assert!(
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| turns.with(|()| panic!("on purpose")))).is_err()
        );
        turns.with(|()| ());
    }
}
