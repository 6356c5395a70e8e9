//! The variables that the library reads (`transom run` sets them).

use std::net::IpAddr;
use std::sync::OnceLock;

use transom_os::environment::DeviceName;

use crate::gid::Layout;
use crate::kind::kind;

/// The value of a variable, if the environment is believed and the value is text.
pub(crate) fn variable(name: &str) -> Option<String> {
    transom_os::environment::variable(name)?.into_string().ok()
}

/// `TRANSOM_ADDRESSES`: the GID table, instead of the host's own addresses.
pub(crate) fn addresses() -> Option<Vec<IpAddr>> {
    let list = variable("TRANSOM_ADDRESSES")?;
    let mut found = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word.parse() {
            Ok(address) => found.push(address),
            Err(_) => {
                transom_os::say!("transom: TRANSOM_ADDRESSES: `{word}` is no IP address; left out")
            }
        }
    }
    Some(found)
}

/// `TRANSOM_PORTS=lo-hi`: the ports of queue pair numbers.
pub(crate) fn ports() -> Option<(u16, u16)> {
    let range = variable("TRANSOM_PORTS")?;
    let parsed = range
        .split_once('-')
        .and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
    match parsed {
        Some((low, high)) if low >= 1024 && low <= high => Some((low, high)),
        _ => {
            transom_os::say!(
                "transom: TRANSOM_PORTS: `{range}` is no range like 20000-20999; ignored"
            );
            None
        }
    }
}

/// `TRANSOM_MTU`: the largest MTU to advertise, as a value of `ibv_mtu`.
pub(crate) fn mtu() -> u32 {
    let bytes = variable("TRANSOM_MTU").and_then(|value| value.parse().ok()).unwrap_or(4096_u32);
    match bytes {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

/// `TRANSOM_AS`: whether the device presents itself as an adapter of iWARP.
pub(crate) fn iwarp() -> bool {
    match variable("TRANSOM_AS").as_deref() {
        Some("iwarp") => true,
        None | Some("roce") => false,
        Some(other) => {
            transom_os::say!(
                "transom: TRANSOM_AS: `{other}` is neither roce nor iwarp; roce it is"
            );
            false
        }
    }
}

/// `TRANSOM_GIDS`: the layout of the GID table. An adapter of iWARP has one GID.
pub(crate) fn layout() -> Layout {
    let wanted = variable("TRANSOM_GIDS");
    match wanted.as_deref() {
        _ if !kind().infiniband => Layout::Hardware,
        None | Some("mlx5") => Layout::Mlx5,
        Some("plain") => Layout::Plain,
        Some(other) => {
            transom_os::say!(
                "transom: TRANSOM_GIDS: `{other}` is neither mlx5 nor plain; mlx5 it is"
            );
            Layout::Mlx5
        }
    }
}

/// `TRANSOM_DEVICE`: the devices, the same for the whole life of the process.
pub(crate) fn devices() -> &'static [DeviceName] {
    static ALL: OnceLock<Vec<DeviceName>> = OnceLock::new();
    ALL.get_or_init(|| {
        let usual = || vec![DeviceName { name: "transom0".to_owned(), addresses: Vec::new() }];
        let Some(list) = variable("TRANSOM_DEVICE") else { return usual() };
        transom_os::environment::devices(&list).unwrap_or_else(|why| {
            transom_os::say!("transom: TRANSOM_DEVICE: {why}; transom0 it is");
            usual()
        })
    })
}
