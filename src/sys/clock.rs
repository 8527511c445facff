//! The monotonic clock in nanoseconds, and sleeping until one of its times.

use std::io;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// `CLOCK_MONOTONIC`, in nanoseconds since the machine's start. All processes and network namespaces of a machine share it.
pub fn now_ns() -> u64 {
    // The call fails for an unknown clock or an invalid pointer only: neither can be here.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, nanoseconds)
}

/// The CPU time that a process has used so far, to the nanosecond, where it still exists.
pub fn process_cpu_ns(pid: i32) -> Option<u64> {
    let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).ok()?;
    clock_gettime(clock).ok().map(nanoseconds)
}

/// The CPU time that the calling thread has used so far.
pub fn thread_cpu_ns() -> u64 {
    // As in `now_ns`: there is nothing that could fail.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0, nanoseconds)
}

/// Sleeps until the monotonic clock shows `at_ns`; returns at once if it is past.
///
/// # Errors
/// None but those of a kernel without `clock_nanosleep`.
pub fn sleep_until(at_ns: u64) -> io::Result<()> {
    let at = TimeSpec::new((at_ns / 1_000_000_000) as i64, (at_ns % 1_000_000_000) as i64);
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at) {
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Lets the calling thread's timers fire when they are due, not up to 50 µs later (`PR_SET_TIMERSLACK`).
///
/// # Errors
/// The error of `prctl`.
pub fn precise_timers() -> io::Result<()> {
    Ok(nix::sys::prctl::set_timerslack(1)?)
}

fn nanoseconds(time: TimeSpec) -> u64 {
    u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_after_its_time_and_a_past_one_at_once() {
        let begin = now_ns();
        sleep_until(begin + 2_000_000).unwrap();
        assert!(now_ns() >= begin + 2_000_000);
        sleep_until(begin).unwrap();
    }

    #[test]
    fn cpu_time_of_the_own_process_grows_and_of_none_is_absent() {
        let before = process_cpu_ns(std::process::id() as i32).unwrap();
        let end = now_ns() + 5_000_000;
        while now_ns() < end {}
        assert!(process_cpu_ns(std::process::id() as i32).unwrap() > before);
        assert_eq!(process_cpu_ns(i32::MAX - 1), None);
    }
}
