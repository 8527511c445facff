//! Where a command's program is, as execvp(3) looks for it.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use nix::errno::Errno;

/// Whether there is such a program: in a folder of `path` (the value of `PATH`), or where a name with a slash says.
///
/// # Errors
/// `ENOENT`: it is nowhere that may be looked into; `EACCES`: it is there and no program that anybody may run.
pub fn find(program: &OsStr, path: Option<&OsStr>) -> io::Result<()> {
    let candidates: Vec<PathBuf> = match path {
        _ if program.as_bytes().contains(&b'/') => vec![PathBuf::from(program)],
        Some(path) => env::split_paths(path).map(|folder| folder.join(program)).collect(),
        // Then the C library has folders of its own.
        None => return Ok(()),
    };
    let mut refused = false;
    for file in candidates.iter().filter_map(|candidate| candidate.metadata().ok()) {
        if file.is_file() && file.permissions().mode() & 0o111 != 0 {
            return Ok(());
        }
        refused = true;
    }
    Err(if refused { Errno::EACCES } else { Errno::ENOENT }.into())
}

/// Why a program did not start, without a closed folder's part in it: where `PATH` has one that may not be looked into, execvp(3)
/// calls every program that is nowhere else refused (`EACCES`). Shells call it not found.
pub fn why_not(program: &OsStr, error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EACCES) || program.as_bytes().contains(&b'/') {
        return error;
    }
    find(program, env::var_os("PATH").as_deref()).err().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::*;

    #[test]
    fn a_program_is_there_or_not_whatever_else_the_path_has() {
        let directory = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode: u32, program: Option<u32>| {
            let folder = directory.path().join(name);
            fs::create_dir(&folder).unwrap();
            if let Some(mode) = program {
                fs::write(folder.join("tool"), "").unwrap();
                fs::set_permissions(folder.join("tool"), fs::Permissions::from_mode(mode)).unwrap();
            }
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            folder
        };
        let closed = folder("closed", 0, None);
        let plain = folder("plain", 0o755, Some(0o644));
        let good = folder("good", 0o755, Some(0o755));
        let absent = directory.path().join("absent");
        let found = |folders: &[&PathBuf]| -> Result<(), Option<i32>> {
            let path: OsString = env::join_paths(folders).unwrap();
            find(OsStr::new("tool"), Some(&path)).map_err(|error| error.raw_os_error())
        };
        assert_eq!(found(&[&closed, &absent, &plain, &good]), Ok(()));
        assert_eq!(found(&[&closed, &absent]), Err(Some(libc::ENOENT)));
        assert_eq!(found(&[&closed, &plain]), Err(Some(libc::EACCES)));
        let by_name = |file: PathBuf| find(file.as_os_str(), None).map_err(|error| error.raw_os_error());
        assert_eq!(by_name(good.join("tool")), Ok(()));
        assert_eq!(by_name(good.join("other")), Err(Some(libc::ENOENT)));
        assert_eq!(by_name(good), Err(Some(libc::EACCES)));
    }
}
