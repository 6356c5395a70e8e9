//! The device as the kernel shows one in `/sys`, for programs that look there: a directory that
//! `transom run` names, and that the library for path names leads them to (Verbs V105).

mod tree;

use std::io::Result;
use std::path::Path;

use crate::device;
use crate::gid::{self, Gid};
use crate::kind::kind;
use tree::Tree;

/// The files below the directory that stands for `/sys`, with what is in them.
fn files(device: &str, gids: &[Gid]) -> Vec<(String, String)> {
    let of = |name: &str| format!("class/infiniband/{device}/{name}");
    let port = |name: &str| of(&format!("ports/1/{name}"));
    let guid = words(&gid::node_guid(gids).to_ne_bytes());
    let mut all = vec![
        (of("node_type"), kind().node_type.1.to_owned()),
        (of("node_guid"), guid.clone()),
        (of("sys_image_guid"), guid),
        (of("fw_ver"), env!("CARGO_PKG_VERSION").to_owned()),
        (of("hca_type"), "Transom".to_owned()),
        (of("board_id"), "Transom".to_owned()),
        (of("device/numa_node"), "-1".to_owned()),
        (of("device/vendor"), "0x5452".to_owned()),
        (of("device/device"), "0x0001".to_owned()),
        (port("state"), "4: ACTIVE".to_owned()),
        (port("phys_state"), "5: LinkUp".to_owned()),
        (port("rate"), "100 Gb/sec (4X EDR)".to_owned()),
        (port("link_layer"), "Ethernet".to_owned()),
        (port("lid"), "0x0".to_owned()),
        (port("sm_lid"), "0x0".to_owned()),
        (port("cap_mask"), format!("{:#010x}", kind().port_capabilities)),
        (port("pkeys/0"), "0xffff".to_owned()),
        ("class/infiniband_verbs/abi_version".to_owned(), "6".to_owned()),
        ("class/infiniband_verbs/uverbs0/ibdev".to_owned(), device.to_owned()),
        ("class/infiniband_verbs/uverbs0/dev".to_owned(), "231:192".to_owned()),
        ("class/infiniband_verbs/uverbs0/abi_version".to_owned(), "1".to_owned()),
    ];
    for (at, (gid, interface)) in device::shown(gids).enumerate() {
        let name = gid::interface_name(interface).unwrap_or_default();
        all.push((port(&format!("gids/{at}")), words(&gid)));
        all.push((port(&format!("gid_attrs/types/{at}")), kind().gid_type.1.to_owned()));
        if !name.is_empty() {
            all.push((port(&format!("gid_attrs/ndevs/{at}")), name.clone()));
            all.push((of(&format!("device/net/{name}/dev_port")), "0".to_owned()));
        }
    }
    all
}

/// Bytes in groups of four digits, as the kernel writes them.
fn words(bytes: &[u8]) -> String {
    let word = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(2).map(word).collect::<Vec<_>>().join(":")
}

/// Write the files below `root`, each at once: another process may read, or write the same.
pub(crate) fn write(root: &Path, device: &str, gids: &[Gid]) -> Result<()> {
    let tree = Tree::open(root)?;
    for (name, text) in files(device, gids) {
        tree.write(&name, &(text + "\n"))?;
    }
    for empty in ["counters", "hw_counters"] {
        tree.folder(&format!("class/infiniband/{device}/ports/1/{empty}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v105_the_device_is_shown_as_the_kernel_shows_one() {
        let gids = [
            Gid { address: "192.0.2.1".parse().unwrap(), interface: 0 },
            Gid { address: "2001:db8::1".parse().unwrap(), interface: 1 },
        ];
        let all = files("transom0", &gids);
        let text = |name: &str| {
            let found = all.iter().find(|(known, _)| known == name);
            found.map(|(_, text)| &**text)
        };
        let port = |name: &str| text(&format!("class/infiniband/transom0/ports/1/{name}"));
        assert_eq!(port("gids/0"), Some("0000:0000:0000:0000:0000:ffff:c000:0201"));
        assert_eq!(port("gids/1"), Some("2001:0db8:0000:0000:0000:0000:0000:0001"));
        assert_eq!(port("gid_attrs/types/1"), Some("RoCE v2"));
        assert_eq!(port("gid_attrs/ndevs/1"), Some("lo"));
        assert_eq!(port("gid_attrs/ndevs/0"), None);
        assert_eq!(text("class/infiniband/transom0/device/net/lo/dev_port"), Some("0"));
        assert_eq!(text("class/infiniband_verbs/uverbs0/ibdev"), Some("transom0"));
        assert_eq!(text("class/infiniband/transom0/node_type"), Some("1: CA"));
    }
}
