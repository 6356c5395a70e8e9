//! The device as the kernel shows one in `/sys`, for programs that look there: a directory that
//! `transom run` names, and that the library for path names leads them to (Verbs V105).

mod tree;

use std::hash::{Hash, Hasher};
use std::io::Result;
use std::path::Path;

use crate::gid::{self, Table};
use crate::kind::kind;
use crate::port;
use tree::Tree;

/// The folder of the PCI devices. The library for path names knows how deep it lies.
const BUS: &str = "devices/pci5452:00";
/// Reading this fails with `EINVAL`, as reading the attributes of an empty GID does.
const UNREADABLE: &str = "/sys/class/net/lo/speed";

/// Speed and width of the PCI device's link, as the kernel writes them: enough for the rate of the port.
const LINK: (&str, &str) = ("16.0 GT/s PCIe", "16");

/// An entry below the directory that stands for `/sys`.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Entry {
    /// A file with this line.
    Line(String),
    /// A symbolic link.
    Link(String),
}

/// The address of a PCI device on its bus.
fn slot(number: usize) -> String {
    format!("5452:00:{number:02x}.0")
}

/// The entries of the device of a number, by path.
fn entries(number: usize, device: &str, gids: &Table) -> Vec<(String, Entry)> {
    let slot = slot(number);
    let folder = format!("{BUS}/{slot}");
    let uverbs = format!("uverbs{number}");
    let of = |name: &str| format!("{folder}/infiniband/{device}/{name}");
    let pci = |name: &str| format!("{folder}/{name}");
    let port = |name: &str| of(&format!("ports/1/{name}"));
    let verbs = |name: &str| format!("{folder}/infiniband_verbs/{uverbs}/{name}");
    let guid = words(&gids.node_guid().to_ne_bytes());
    let interfaces = interfaces(gids);
    let lines = [
        (of("node_type"), kind().node_type.1),
        (of("node_guid"), &guid),
        (of("sys_image_guid"), &guid),
        (of("fw_ver"), env!("CARGO_PKG_VERSION")),
        (of("hca_type"), "Transom"),
        (of("board_id"), "Transom"),
        (pci("numa_node"), &numa_node(Path::new("/sys"), &interfaces)),
        (pci("vendor"), "0x5452"),
        (pci("device"), "0x0001"),
        (pci("subsystem_vendor"), "0x5452"),
        (pci("subsystem_device"), "0x0001"),
        (pci("class"), "0x020000"),
        (pci("revision"), "0x01"),
        (pci("max_link_speed"), LINK.0),
        (pci("max_link_width"), LINK.1),
        (pci("current_link_speed"), LINK.0),
        (pci("current_link_width"), LINK.1),
        (port("state"), "4: ACTIVE"),
        (port("phys_state"), "5: LinkUp"),
        (port("rate"), "100 Gb/sec (4X EDR)"),
        (port("link_layer"), "Ethernet"),
        (port("lid"), "0x0"),
        (port("sm_lid"), "0x0"),
        (port("cap_mask"), &format!("{:#010x}", kind().port_capabilities)),
        (port("pkeys/0"), "0xffff"),
        ("class/infiniband_verbs/abi_version".to_owned(), "6"),
        (verbs("ibdev"), device),
        (verbs("dev"), &format!("231:{}", 192 + number)),
        (verbs("abi_version"), "1"),
    ];
    let mut all: Vec<_> =
        lines.into_iter().map(|(path, text)| (path, Entry::Line(text.to_owned()))).collect();
    for (class, name) in [("infiniband", device), ("infiniband_verbs", &*uverbs)] {
        let to = format!("../../{folder}/{class}/{name}");
        all.push((format!("class/{class}/{name}"), Entry::Link(to)));
        let to = format!("../../../{slot}");
        all.push((format!("{folder}/{class}/{name}/device"), Entry::Link(to)));
    }
    for name in &interfaces {
        all.push((pci(&format!("net/{name}/dev_port")), Entry::Line("0".to_owned())));
    }
    for at in 0..gids.length() {
        let entry = gids.get(at);
        let interface = entry.and_then(|gid| gid::interface_name(gid.interface));
        let gid = entry.map_or([0; 16], |gid| gid.bytes);
        let kind = entry.map(|gid| gid.of.1.to_owned());
        let readable = |text| match text {
            Some(text) => Entry::Line(text),
            None => Entry::Link(UNREADABLE.to_owned()),
        };
        all.push((port(&format!("gids/{at}")), Entry::Line(words(&gid))));
        all.push((port(&format!("gid_attrs/types/{at}")), readable(kind)));
        all.push((port(&format!("gid_attrs/ndevs/{at}")), readable(interface)));
    }
    all
}

/// The names of the interfaces that have the addresses of a device.
fn interfaces(gids: &Table) -> Vec<String> {
    let entries = (0..gids.length()).filter_map(|at| gids.get(at));
    let mut all: Vec<_> = entries.filter_map(|gid| gid::interface_name(gid.interface)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The NUMA node of a device with these interfaces, as the kernel writes it: that of the first adapter that has one, or
/// the only one of the host, whose adapters of hardware are near to it, or none. Some programs (UCCL) do not start on
/// an adapter without a node.
fn numa_node(sys: &Path, interfaces: &[String]) -> String {
    let number = |path: &str| {
        let text = std::fs::read_to_string(sys.join(path)).ok()?;
        text.trim().parse::<u32>().ok().map(|node| node.to_string())
    };
    interfaces
        .iter()
        .find_map(|name| number(&format!("class/net/{name}/device/numa_node")))
        .or_else(|| number("devices/system/node/online"))
        .unwrap_or_else(|| "-1".to_owned())
}

/// The place of a digest of the entries of a device, which is written behind them.
fn digest_of(number: usize) -> String {
    format!("written-{number}")
}

fn digest(entries: &[(String, Entry)]) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    entries.hash(&mut hasher);
    format!("{:016x}\n", hasher.finish())
}

/// Whether [`write`] has written these entries last.
pub(crate) fn is_written(root: &Path, number: usize, device: &str, gids: &Table) -> bool {
    let digest = digest(&entries(number, device, gids));
    Tree::open(root).is_ok_and(|tree| tree.has(&digest_of(number), &digest))
}

/// Bytes in groups of four digits, as the kernel writes them.
fn words(bytes: &[u8]) -> String {
    let word = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(2).map(word).collect::<Vec<_>>().join(":")
}

/// Write the entries of the device of a number below `root`, each at once: another process may read, or write
/// the same.
pub(crate) fn write(root: &Path, number: usize, device: &str, gids: &Table) -> Result<()> {
    let tree = Tree::open(root)?;
    let entries = entries(number, device, gids);
    for (path, entry) in &entries {
        match entry {
            Entry::Line(text) => tree.write(path, &format!("{text}\n"))?,
            Entry::Link(to) => tree.link(path, to)?,
        }
    }
    tree.keep(&format!("{BUS}/{}/net", slot(number)), &interfaces(gids))?;
    let port = port_of((number, device));
    let zero = |name: &&'static str| (*name, "0\n");
    let traffic = port::TRAFFIC.iter().chain(&port::NEVER).map(zero);
    tree.begin(&format!("{port}/counters"), traffic)?;
    let failures = port::FAILURES.iter().map(zero).chain([port::LIFESPAN]);
    tree.begin(&format!("{port}/hw_counters"), failures)?;
    tree.write(&digest_of(number), &digest(&entries))
}

/// The folder of the port of a device, by its number and its name.
fn port_of((number, device): (usize, &str)) -> String {
    format!("{BUS}/{}/infiniband/{device}/ports/1", slot(number))
}

/// Have the counters `names` of a folder of the port grow as they do from `added` to `now`; `added` follows each.
/// `false`: another process counts at this moment.
pub(crate) fn count<const N: usize>(
    root: &Path,
    device: (usize, &str),
    folder: &str,
    names: &[&str; N],
    added: &mut [u64; N],
    now: &[u64; N],
) -> Result<bool> {
    if added == now {
        return Ok(true);
    }
    let tree = Tree::open(root)?;
    let counted = names.iter().zip(added.iter_mut().zip(now));
    tree.add(
        &format!("{}/{folder}", port_of(device)),
        counted
            .map(|(name, (added, now))| (*name, now.wrapping_sub(std::mem::replace(added, *now)))),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::gid::Layout;

    /// Six entries: of a link-local GID, an address of no interface, and one of the first interface.
    fn gids() -> Table {
        let places = [("192.0.2.1".parse().unwrap(), 0), ("2001:db8::1".parse().unwrap(), 1)];
        Table::of(&places, Layout::Mlx5, 0)
    }

    /// A directory with the device of [`gids`].
    fn written(name: &str) -> std::path::PathBuf {
        let root =
            std::env::temp_dir().join(format!("transom-sysfs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let root = root.canonicalize().unwrap();
        write(&root, 0, "transom0", &gids()).unwrap();
        root
    }

    #[test]
    fn v105_the_device_is_shown_as_the_kernel_shows_one() {
        let root = written("shown");
        let text = |name: &str| fs::read_to_string(root.join("class").join(name)).ok();
        let port = |name: &str| text(&format!("infiniband/transom0/ports/1/{name}"));
        let is = |found: Option<String>, wanted: &str| {
            assert_eq!(found.as_deref(), Some(&*format!("{wanted}\n")));
        };
        is(port("gids/0"), "fe80:0000:0000:0000:0000:5efe:c000:0201");
        for at in [2, 3] {
            is(port(&format!("gids/{at}")), "0000:0000:0000:0000:0000:ffff:c000:0201");
        }
        is(port("gids/5"), "2001:0db8:0000:0000:0000:0000:0000:0001");
        is(port("gid_attrs/types/4"), "IB/RoCE v1");
        is(port("gid_attrs/types/5"), "RoCE v2");
        is(port("gid_attrs/ndevs/5"), "lo");
        assert_eq!(port("gid_attrs/ndevs/3"), None, "an address of no interface");
        is(text("infiniband/transom0/device/net/lo/dev_port"), "0");
        for (name, wanted) in [
            ("class", "0x020000"),
            ("vendor", "0x5452"),
            ("device", "0x0001"),
            ("numa_node", &numa_node(Path::new("/sys"), &["lo".to_owned()])),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
        ] {
            is(text(&format!("infiniband/transom0/device/{name}")), wanted);
        }
        is(text("infiniband_verbs/uverbs0/ibdev"), "transom0");
        is(text("infiniband/transom0/node_type"), "1: CA");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v105_the_numa_node_is_that_of_the_interface_or_the_only_one() {
        let sys = std::env::temp_dir().join(format!("transom-sysfs-numa-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            fs::create_dir_all(sys.join(path).parent().unwrap()).unwrap();
            fs::write(sys.join(path), text).unwrap();
        };
        let node = |names: &[&str]| {
            numa_node(&sys, &names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(node(&["eth0"]), "-1", "a host that says nothing");
        put("devices/system/node/online", "0-1\n");
        put("class/net/eth0/device/numa_node", "-1\n");
        put("class/net/eth1/device/numa_node", "1\n");
        assert_eq!(node(&["eth1"]), "1");
        assert_eq!(node(&["lo", "eth0", "eth1"]), "1", "the first that has a node");
        assert_eq!(node(&["lo", "eth0"]), "-1", "one of two nodes would be a guess");
        put("devices/system/node/online", "0\n");
        assert_eq!(node(&["lo", "eth0"]), "0");
        assert_eq!(node(&["eth1"]), "1");
        fs::remove_dir_all(sys).unwrap();
    }

    /// As many entries as `gid_tbl_len` says: an empty GID reads as zeros, and its attributes cannot be
    /// read.
    #[test]
    fn v105_every_entry_of_the_gid_table_is_there() {
        let root = written("table");
        let port = root.join("class/infiniband/transom0/ports/1");
        for at in 0..gids().length() {
            let name = |folder: &str| port.join(folder).join(at.to_string());
            let gid = fs::read_to_string(name("gids")).unwrap();
            assert_eq!(gid == format!("{}\n", words(&[0; 16])), at >= 6, "{at}: {gid}");
            let kind = fs::read(name("gid_attrs/types"));
            assert_eq!(kind.is_ok(), at < 6, "{at}");
            for folder in ["gid_attrs/types", "gid_attrs/ndevs"] {
                assert!(name(folder).symlink_metadata().is_ok(), "{at}: {folder}");
            }
        }
        // An address that has come takes its place, one that has gone leaves it.
        let one = Table::of(&[("192.0.2.1".parse().unwrap(), 0)], Layout::Mlx5, 0);
        write(&root, 0, "transom0", &one).unwrap();
        assert!(fs::read(port.join("gid_attrs/types/5")).is_err());
        write(&root, 0, "transom0", &gids()).unwrap();
        assert!(fs::read(port.join("gid_attrs/types/5")).is_ok());
        fs::remove_dir_all(root).unwrap();
    }

    /// Programs take what stands below `net/` for the interfaces of the device.
    #[test]
    fn v105_an_interface_that_has_gone_is_shown_no_longer() {
        let root = written("interfaces");
        let net = root.join("class/infiniband/transom0/device/net");
        fs::create_dir(net.join("gone0")).unwrap();
        fs::write(net.join("gone0/dev_port"), "0\n").unwrap();
        write(&root, 0, "transom0", &gids()).unwrap();
        let left: Vec<_> = fs::read_dir(net).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["lo"]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v105_a_table_that_has_changed_is_not_taken_for_written() {
        let root = written("digest");
        let other = Table::of(&[("192.0.2.1".parse().unwrap(), 0)], Layout::Mlx5, 0);
        let is_written =
            |number, name, table: &Table| super::is_written(&root, number, name, table);
        assert!(is_written(0, "transom0", &gids()));
        assert!(!is_written(0, "transom0", &other) && !is_written(0, "mlx5_0", &gids()));
        assert!(!is_written(1, "transom0", &gids()));
        write(&root, 0, "transom0", &other).unwrap();
        assert!(is_written(0, "transom0", &other) && !is_written(0, "transom0", &gids()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v175_counters_begin_with_zero_and_are_kept() {
        let root = written("counted");
        let port = root.join("class/infiniband/transom0/ports/1");
        let text = |name: &str| fs::read_to_string(port.join(name)).unwrap();
        let names = port::TRAFFIC.iter().chain(&port::NEVER).map(|name| format!("counters/{name}"));
        let failures = port::FAILURES.iter().map(|name| format!("hw_counters/{name}"));
        for name in names.chain(failures) {
            assert_eq!(text(&name), "0\n", "{name}");
        }
        assert_eq!(text("hw_counters/lifespan"), "10\n");
        let (mut added, now) = ([0; 7], [1, 2, 3, 4, 5, 6, 7]);
        let count = |added: &mut [u64; 7], now| {
            count(&root, (0, "transom0"), "hw_counters", &port::FAILURES, added, now).unwrap()
        };
        assert!(count(&mut added, &now));
        assert_eq!(added, now);
        assert!(count(&mut added, &[1, 2, 3, 4, 5, 6, 9]));
        write(&root, 0, "transom0", &gids()).unwrap();
        assert_eq!(text("hw_counters/req_cqe_flush_error"), "2\n");
        assert_eq!(text("hw_counters/resp_local_length_error"), "9\n");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v105_each_device_is_a_pci_device_of_its_own() {
        let root = written("two");
        let other = Table::of(&[("192.0.2.2".parse().unwrap(), 0)], Layout::Mlx5, 1);
        write(&root, 1, "transom1", &other).unwrap();
        let text = |name: &str| fs::read_to_string(root.join("class").join(name)).unwrap();
        assert_eq!(text("infiniband_verbs/uverbs0/ibdev"), "transom0\n");
        assert_eq!(text("infiniband_verbs/uverbs1/ibdev"), "transom1\n");
        assert_ne!(text("infiniband_verbs/uverbs0/dev"), text("infiniband_verbs/uverbs1/dev"));
        assert_ne!(text("infiniband/transom0/node_guid"), text("infiniband/transom1/node_guid"));
        let gid = "0000:0000:0000:0000:0000:ffff:c000:0202\n";
        assert_eq!(text("infiniband/transom1/ports/1/gids/3"), gid);
        let folder = |name: &str| root.join(name).join("device").canonicalize().unwrap();
        let second = folder("class/infiniband/transom1");
        assert_eq!(second, folder("class/infiniband_verbs/uverbs1"));
        assert_eq!(second.file_name().unwrap(), "5452:00:01.0");
        fs::remove_dir_all(root).unwrap();
    }

    /// The device lies below a PCI device, and each way there leads to it.
    #[test]
    fn v105_the_device_is_a_link_into_the_folder_of_a_pci_device() {
        let root = written("links");
        let device = root.join("class/infiniband/transom0");
        let folder = root.join("devices/pci5452:00/5452:00:00.0");
        for way in ["device", "../..", "ports/1/../../../..", "device/net/../"] {
            assert_eq!(device.join(way).canonicalize().unwrap(), folder, "{way}");
        }
        let verbs = root.join("class/infiniband_verbs/uverbs0/device");
        assert_eq!(verbs.canonicalize().unwrap(), folder);
        assert_eq!(device.canonicalize().unwrap(), folder.join("infiniband/transom0"));
        fs::remove_dir_all(root).unwrap();
    }
}
