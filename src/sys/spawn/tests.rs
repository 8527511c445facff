use std::os::fd::OwnedFd;

use super::*;
use crate::sys::pidfd::ExitStatus;

fn shell(script: &str) -> (Spawn, io::PipeReader) {
    let (read, write) = io::pipe().unwrap();
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let spawn = Spawn {
        program: PathBuf::from("/bin/sh"),
        arguments: ["sh", "-c", script].map(OsString::from).to_vec(),
        environment: Vec::new(),
        files: vec![null.into(), write.into(), fs::File::open("/dev/null").unwrap().into()],
        namespaces: Namespaces::default(),
        mounts: Vec::new(),
        own_session: false,
        dies_with_thread: false,
    };
    (spawn, read)
}

fn said(mut pipe: io::PipeReader) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text.trim().to_owned()
}

#[test]
fn the_child_gets_its_files_its_variables_and_nothing_else() {
    let (extra_read, extra_write) = io::pipe().unwrap();
    let (mut spawn, output) =
        shell("echo $WGLAB_TEST; echo more >&3; for fd in /proc/self/fd/*; do echo ${fd##*/}; done");
    spawn.environment.push(("WGLAB_TEST".into(), "there".into()));
    spawn.files.push(extra_write.into());
    // A descriptor that is not closed on exec must not get through either.
    let leak: OwnedFd = fs::File::open("/dev/null").unwrap().into();
    nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let child = spawn.start().unwrap();
    assert_eq!(child.handle.reap().unwrap(), ExitStatus::Exited(0));
    drop(leak);
    // The shell opens the directory itself, as one more.
    let text = said(output);
    assert!(text.starts_with("there\n0\n1\n2\n3"), "{text}");
    assert!(text.lines().count() <= 6, "{text}");
    assert_eq!(said(extra_read), "more");
}

#[test]
fn signals_are_back_to_their_defaults() {
    let (spawn, output) = shell("cat /proc/self/status");
    spawn.start().unwrap().handle.reap().unwrap();
    // Bits 31 and 32 are the C library's own signals, which it lets nobody set.
    let own = 0b11 << 31;
    for line in said(output).lines() {
        if let Some(mask) = line.strip_prefix("SigBlk:").or_else(|| line.strip_prefix("SigIgn:")) {
            assert_eq!(u64::from_str_radix(mask.trim(), 16).unwrap() & !own, 0, "{line}");
        }
    }
    let now = SigSet::thread_get_mask().unwrap();
    assert!(!now.contains(Signal::SIGTERM), "the caller's own mask is restored");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let (mut spawn, _) = shell("");
    spawn.program = "/nowhere/at/all".into();
    let error = spawn.start().unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT));
    assert_eq!(error.to_string(), "cannot execute /nowhere/at/all");
}

#[test]
fn a_zero_byte_is_refused_before_anything_starts() {
    let (mut spawn, _) = shell("");
    spawn.arguments.push("a\0b".into());
    assert!(matches!(spawn.start().unwrap_err(), SpawnError::ZeroByte { .. }));
}

#[test]
fn a_required_mount_that_fails_stops_the_child_and_another_is_said() {
    // Without a mount namespace of its own, a user may not mount, and root must not: a target that is not there
    // fails for both.
    let missing = Mount::Tmpfs("/nowhere/at/all".into());
    let (mut spawn, output) = shell("echo ran");
    spawn.mounts.push((missing.clone(), false));
    let child = spawn.start().unwrap();
    child.handle.reap().unwrap();
    assert_eq!(said(output), "ran");
    assert_eq!(child.refused[0].mount, missing);

    let (mut spawn, output) = shell("echo ran");
    spawn.mounts.push((missing, true));
    let error = spawn.start().unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    assert_eq!(said(output), "");
}

#[test]
fn the_child_dies_with_the_thread_that_spawned_it() {
    let (mut spawn, output) = shell("echo $$; exec sleep 60");
    spawn.dies_with_thread = true;
    let child = std::thread::spawn(move || spawn.start().unwrap()).join().unwrap();
    assert_eq!(child.handle.reap().unwrap(), ExitStatus::Signalled(9));
    drop(output);
}
