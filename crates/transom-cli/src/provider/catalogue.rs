//! The Winsock catalogue, as far as NetworkDirect needs it: which entries are Transom's, and how the
//! catalogue gets from one state of them to another without a half-done one in between.
//!
//! Microsoft's client library takes entries of one provider id for one provider of one version, so
//! each version has an id of its own, with an entry for each address family.

use std::fmt;

/// A provider's id, laid out as a GUID of Windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) u32, pub(crate) u16, pub(crate) u16, pub(crate) [u8; 8]);

/// An entry of the catalogue, laid out as a `WSAPROTOCOL_INFOW`.
#[repr(C)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) service_flags: [u32; 4],
    pub(crate) provider_flags: u32,
    pub(crate) provider: Id,
    /// The number of the entry, which the catalogue assigns.
    pub(crate) number: u32,
    pub(crate) chain_length: i32,
    pub(crate) chain: [u32; 7],
    pub(crate) version: i32,
    pub(crate) address_family: i32,
    pub(crate) longest_address: i32,
    pub(crate) shortest_address: i32,
    pub(crate) socket_type: i32,
    pub(crate) protocol: i32,
    pub(crate) highest_protocol: i32,
    pub(crate) byte_order: i32,
    pub(crate) security_scheme: i32,
    pub(crate) message_size: u32,
    pub(crate) reserved: u32,
    /// UTF-16, filled up with zeros.
    pub(crate) name: [u16; 256],
}

impl Entry {
    /// The entry without the number that the catalogue assigns.
    fn unnumbered(&self) -> Entry {
        Entry { number: 0, ..self.clone() }
    }

    pub(crate) fn name(&self) -> String {
        let length = self.name.iter().position(|unit| *unit == 0).unwrap_or(self.name.len());
        String::from_utf16_lossy(&self.name[..length])
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, version, family) = (self.name(), self.version, self.address_family);
        write!(f, "{name:?} #{} version {version:#x} family {family}", self.number)
    }
}

/// A version of NetworkDirect, whose number is what the catalogue has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Two = 0x2_0000,
    One = 0x1,
}

/// Both, in the order in which they are installed.
pub(crate) const VERSIONS: [Version; 2] = [Version::Two, Version::One];

/// Numbers of address families, lengths of an address, and names.
const FAMILIES: [(i32, i32, &str); 2] = [(2, 16, "IPv4"), (23, 28, "IPv6")];

/// `XP1_GUARANTEED_DELIVERY`, `_GUARANTEED_ORDER`, `_MESSAGE_ORIENTED`, `_CONNECT_DATA`.
const SERVICE: u32 = 0x02 | 0x04 | 0x08 | 0x80;
/// `PFL_HIDDEN`, which keeps the entry from programs that ask for sockets, and
/// `PFL_NETWORKDIRECT_PROVIDER`.
const PROVIDER: u32 = 0x04 | 0x10;

impl Version {
    pub(crate) fn id(self) -> Id {
        let tail = [0xBB, 0x0B, 0x54, 0x52, 0x41, 0x4E, 0x53, 0x4D];
        match self {
            Version::Two => Id(0x1031_35BF, 0xED2B, 0x47F1, tail),
            Version::One => Id(0x2A46_A4FD, 0xA772, 0x4318, tail),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Version::Two => "NetworkDirect 2",
            Version::One => "NetworkDirect 1",
        }
    }

    /// The entries that the catalogue must have: one for each address family.
    pub(crate) fn entries(self) -> Vec<Entry> {
        FAMILIES.map(|(family, length, name)| self.entry(family, length, name)).into()
    }

    fn entry(self, address_family: i32, length: i32, family: &str) -> Entry {
        let mut name = [0; 256];
        let text = format!("Transom {} ({family})", self.name());
        for (place, unit) in name.iter_mut().zip(text.encode_utf16()) {
            *place = unit;
        }
        Entry {
            service_flags: [SERVICE, 0, 0, 0],
            provider_flags: PROVIDER,
            provider: self.id(),
            number: 0,
            chain_length: 1, // a base provider
            chain: [0; 7],
            version: self as i32,
            address_family,
            longest_address: length,
            shortest_address: length,
            socket_type: -1,
            protocol: 0,
            highest_protocol: 0,
            byte_order: 0,
            security_scheme: 0,
            message_size: u32::MAX,
            reserved: 0,
            name,
        }
    }
}

/// A call that the system has refused: its name and the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) code: i32,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = match self.code {
            8 | 10055 => "out of memory",
            10013 => "no permission",
            10014 => "an address is wrong",
            10022 => "an argument is wrong, or there is no such provider",
            11003 => {
                "the provider is there already, the rights of an administrator are missing, or the catalogue cannot be opened"
            }
            _ => "a code that this call is not known to return",
        };
        write!(f, "{} failed with {} ({meaning})", self.call, self.code)
    }
}

type Answer<T> = Result<T, Refused>;

/// The calls on the catalogue that 64-bit programs use.
pub(crate) trait Catalogue {
    /// Whether this process has the rights of an administrator.
    fn is_administrator(&self) -> bool;
    /// Every entry of every provider, in the order of the catalogue.
    fn entries(&self) -> Answer<Vec<Entry>>;
    /// The path of a provider's library.
    fn library(&self, provider: Id) -> Answer<String>;
    /// Adds a provider that has no entries yet.
    fn install(&mut self, provider: Id, library: &str, entries: &[Entry]) -> Answer<()>;
    /// Takes all entries of a provider out.
    fn remove(&mut self, provider: Id) -> Answer<()>;
}

/// The part of the catalogue that is one version's: its entries, without their numbers, and the path of the
/// library, which is `None` exactly where there is no entry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Held {
    pub(crate) library: Option<String>,
    pub(crate) entries: Vec<Entry>,
}

impl Held {
    pub(crate) fn is_nothing(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The state of both versions, in the order of [`VERSIONS`].
pub(crate) type CatalogueState = [Held; 2];

/// The state in which both versions are not installed.
pub(crate) fn nothing() -> CatalogueState {
    [Held::default(), Held::default()]
}

/// The state in which both versions are installed with this library.
pub(crate) fn installed(library: &str) -> CatalogueState {
    VERSIONS.map(|version| Held { library: Some(library.to_owned()), entries: version.entries() })
}

/// The state now.
pub(crate) fn look(catalogue: &impl Catalogue) -> Answer<CatalogueState> {
    let all = catalogue.entries()?;
    let held = |version| held(catalogue, &all, version);
    Ok([held(VERSIONS[0])?, held(VERSIONS[1])?])
}

fn held(catalogue: &impl Catalogue, all: &[Entry], version: Version) -> Answer<Held> {
    let ours = all.iter().filter(|entry| entry.provider == version.id());
    let entries: Vec<Entry> = ours.map(Entry::unnumbered).collect();
    let library = if entries.is_empty() { None } else { Some(catalogue.library(version.id())?) };
    Ok(Held { library, entries })
}

/// The entries of all others.
fn others(all: Vec<Entry>) -> Vec<Entry> {
    let ours = VERSIONS.map(Version::id);
    all.into_iter().filter(|entry| !ours.contains(&entry.provider)).collect()
}

/// Why the catalogue did not get from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The rights of an administrator are missing.
    NoAdministrator,
    /// The system has refused a call.
    Refused(Refused),
    /// All calls succeeded, and the catalogue does not have what it was given.
    NotRecorded,
    /// Entries of others are not what they were.
    OthersChanged,
}

/// A change that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) cause: Cause,
    /// Whether Transom's entries are what they were before; otherwise why not.
    pub(crate) restored: Answer<()>,
}

/// Gets the catalogue to `wanted`, and says whether that changed anything. Whatever fails on the
/// way, Transom's entries are put back to what they were.
pub(crate) fn change(
    catalogue: &mut impl Catalogue,
    wanted: &CatalogueState,
) -> Result<bool, Failed> {
    let untouched = |cause| Failed { cause, restored: Ok(()) };
    let refused = |refused| untouched(Cause::Refused(refused));
    let before = others(catalogue.entries().map_err(refused)?);
    let found = look(catalogue).map_err(refused)?;
    if found == *wanted {
        return Ok(false);
    }
    if !catalogue.is_administrator() {
        return Err(untouched(Cause::NoAdministrator));
    }
    let done = apply(catalogue, wanted).map_err(Cause::Refused);
    let Err(cause) = done.and_then(|()| compare(catalogue, wanted, &before)) else {
        return Ok(true);
    };
    Err(Failed { cause, restored: apply(catalogue, &found) })
}

/// Makes each version what `wanted` says, by the catalogue's own account of what it is.
fn apply(catalogue: &mut impl Catalogue, wanted: &CatalogueState) -> Answer<()> {
    for (version, wanted) in VERSIONS.into_iter().zip(wanted) {
        let all = catalogue.entries()?;
        let now = held(catalogue, &all, version)?;
        if now == *wanted {
            continue;
        }
        if !now.is_nothing() {
            catalogue.remove(version.id())?;
        }
        if let Some(library) = &wanted.library {
            catalogue.install(version.id(), library, &wanted.entries)?;
        }
    }
    Ok(())
}

fn compare(
    catalogue: &impl Catalogue,
    wanted: &CatalogueState,
    before: &[Entry],
) -> Result<(), Cause> {
    let now = look(catalogue).map_err(Cause::Refused)?;
    if now != *wanted {
        return Err(Cause::NotRecorded);
    }
    if others(catalogue.entries().map_err(Cause::Refused)?) != before {
        return Err(Cause::OthersChanged);
    }
    Ok(())
}
