//! The machine: kernel, CPU, memory, and what it runs on.

use std::path::Path;

use crate::units::Bytes;

/// The kernel's release and instruction set; empty where the system does not say.
pub(super) fn kernel() -> (String, String) {
    nix::sys::utsname::uname().map_or_else(
        |_| (String::new(), String::new()),
        |name| (name.release().to_string_lossy().into_owned(), name.machine().to_string_lossy().into_owned()),
    )
}

/// The model in `/proc/cpuinfo`. x86 and most others name it; Arm gives numbers, of which the part identifies the core.
pub(super) fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let arm = || Some(format!("Arm implementer {} part {}", field("CPU implementer")?, field("CPU part")?));
    ["model name", "cpu model", "uarch", "cpu"].iter().find_map(|name| field(name)).or_else(arm)
}

/// `MemTotal` of `/proc/meminfo`, whose `kB` are 1024 bytes (proc_meminfo(5)).
pub(super) fn memory(meminfo: &str) -> Option<Bytes> {
    let text = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = text.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::new(kibibytes * 1024))
}

/// Whether a `uid_map` is the identity over all users: the machine's own user namespace (user_namespaces(7)).
pub(super) fn is_machines_own(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Signs that the machine is not bare.
pub(super) fn virtualisation(kernel: &str, cpuinfo: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut signs = Vec::new();
    let lower = kernel.to_ascii_lowercase();
    if lower.contains("microsoft") {
        signs.push(if lower.contains("wsl2") { "WSL2" } else { "WSL" }.to_owned());
    }
    let text = |path: &str| read(path).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let hypervisor =
        cpuinfo.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor"));
    if hypervisor || text("/sys/hypervisor/type").is_some() {
        let vendor = [text("/sys/class/dmi/id/sys_vendor"), text("/sys/class/dmi/id/product_name")];
        let vendor: Vec<String> = vendor.into_iter().flatten().collect();
        let name = text("/sys/hypervisor/type").or_else(|| (!vendor.is_empty()).then(|| vendor.join(" ")));
        signs.push(name.map_or_else(|| "hypervisor".to_owned(), |name| format!("hypervisor: {name}")));
    }
    if read("/proc/version").is_some_and(|version| version.contains("gVisor")) {
        signs.push("gVisor".to_owned());
    }
    let containers = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    for (_, name) in containers.iter().filter(|(path, _)| Path::new(path).exists()) {
        signs.push(format!("container: {name}"));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        signs.push("container: Kubernetes".to_owned());
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_several_kinds_have_a_model() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n").unwrap(), "AMD EPYC");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).unwrap(), "Arm implementer 0x41 part 0xd0c");
        assert_eq!(cpu_model("processor: 0\n"), None);
    }

    #[test]
    fn memory_is_counted_in_binary_kilobytes() {
        assert_eq!(memory("MemTotal:       2048 kB\nMemFree: 1 kB\n").unwrap().get(), 2_097_152);
        assert_eq!(memory("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn a_user_namespace_shows_in_its_map() {
        assert!(is_machines_own("         0          0 4294967295\n"));
        assert!(!is_machines_own("         0       1000          1\n"));
        assert!(!is_machines_own(""));
    }

    #[test]
    fn what_a_machine_runs_on_is_named() {
        let none = |_: &str| None;
        assert!(virtualisation("6.6.0-microsoft-standard-WSL2", "", none).contains(&"WSL2".to_owned()));
        let dmi = |path: &str| path.ends_with("sys_vendor").then(|| "QEMU\n".to_owned());
        let signs = virtualisation("6.1.0", "flags\t\t: fpu hypervisor sse\n", dmi);
        assert!(signs.contains(&"hypervisor: QEMU".to_owned()), "{signs:?}");
    }
}
