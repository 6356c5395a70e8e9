//! Logical address mappings and the privileged token (NDK 11.3, 11.4).
//!
//! A mapping gives pages logical addresses: made-up ones, each mapping's in a row and far from
//! every other's (NDK LAM-12). In the memory table a mapping is a region without remote rights in
//! every protection domain that uses it, made at the first use. The privileged token is no region:
//! it is a name that is resolved, by the logical address beside it, to the token of such a region,
//! and this is what the table judges. To a peer it names nothing (NDK PT-2).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use transom_engine::{Sge, raw};
use transom_memory::{ChainError, PAGE, Piece, Rights, Scope, Segment, Token, chained};

use super::mr::pages_of;
use super::{Adapter, Pd};
use crate::Status;
use crate::deliver::{Call, Done, Pending, lock, returned};

/// Logical addresses begin here: no address of a program's on any processor that we run on.
const FIRST: u64 = 1 << 60;

/// A mapping as the consumer sees it.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The provider's name for it.
    pub number: u64,
    /// Offset of the first byte in the first page (NDK LAM-5).
    pub offset: u32,
    /// Logical address of each page (NDK LAM-4).
    pub pages: Vec<u64>,
}

/// Hands a mapping to the consumer, in whose memory there is room for it.
pub type Give = Box<dyn FnOnce(&Mapping) + Send>;

#[derive(Debug)]
struct Lam {
    /// Logical address of the first byte.
    base: u64,
    segments: Vec<Segment>,
    pages: Vec<u64>,
    /// The mapping's region in each protection domain that has used it; `None` once it was
    /// released.
    regions: Mutex<Option<HashMap<raw::Domain, Token>>>,
}

/// The mappings of an adapter (NDK LAM-10), by the logical address of their first page.
#[derive(Debug, Default)]
pub(crate) struct Lams(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    used: u64,
    lams: BTreeMap<u64, Arc<Lam>>,
}

impl Lams {
    fn add(&self, base: u64, segments: Vec<Segment>) -> Mapping {
        let pages = pages_of(&segments);
        let offset = base % PAGE;
        let mut table = lock(&self.0);
        let number = FIRST + table.used;
        // A page stays free between two mappings, so that no run of addresses spans both.
        table.used += (pages.len() as u64 + 1) * PAGE;
        let logical = (0..pages.len() as u64).map(|index| number + index * PAGE).collect();
        let regions = Mutex::new(Some(HashMap::new()));
        let lam = Arc::new(Lam { base: number + offset, segments, pages, regions });
        table.lams.insert(number, lam);
        Mapping { number, offset: offset as u32, pages: logical }
    }

    fn remove(&self, number: u64) -> Option<Arc<Lam>> {
        lock(&self.0).lams.remove(&number)
    }

    /// The mapping that an address could be in: the last that begins at or before it.
    fn at(&self, address: u64) -> Option<(u64, Arc<Lam>)> {
        let table = lock(&self.0);
        let (number, lam) = table.lams.range(..=address).next_back()?;
        Some((*number, Arc::clone(lam)))
    }

    /// The page that a logical address is the address of (NDK FR-7).
    pub(crate) fn page(&self, logical: u64) -> Option<u64> {
        let (number, lam) = self.at(logical)?;
        let offset = logical - number;
        let index = usize::try_from(offset / PAGE).ok()?;
        lam.pages.get(index).copied().filter(|_| offset.is_multiple_of(PAGE))
    }
}

impl Lam {
    /// The mapping's region in a protection domain.
    #[allow(unsafe_code, reason = "the promise of `Adapter::build_lam`'s caller")]
    fn region(&self, pd: &Pd) -> Option<Token> {
        let mut regions = lock(&self.regions);
        let regions = regions.as_mut()?;
        if let Some(region) = regions.get(&pd.raw) {
            return Some(*region);
        }
        // This side's own, never a peer's (NDK PT-1, PT-2). The pages are not looked at: pinning
        // them was the consumer's duty.
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        let (adapter, scope) = (&pd.adapter.raw, Scope::Domain(pd.raw.0));
        // SAFETY: the pages are those of a mapping that is not released yet (the lock keeps it so),
        // which is `Adapter::build_lam`'s contract.
        let region = unsafe { adapter.register_in(scope, self.base, &self.segments, rights) };
        let region = region.ok()?;
        regions.insert(pd.raw, region);
        Some(region)
    }

    /// Nothing goes through it any more when this returns.
    fn release(&self, adapter: &raw::Adapter) {
        let regions = lock(&self.regions).take();
        regions.iter().flat_map(HashMap::values).for_each(|region| {
            adapter.close_region(*region);
        });
    }
}

impl Adapter {
    /// `NdkBuildLAM`: what it maps, for `built` to hand out; its answer is the request's.
    ///
    /// # Safety
    /// Until [`Adapter::release_lam`]: as [`Mr::register`](super::Mr::register).
    #[allow(unsafe_code, reason = "the promise is the caller's")]
    pub unsafe fn build_lam(
        self: &Arc<Self>,
        chain: impl IntoIterator<Item = Result<Piece, ChainError>>,
        length: u64,
        built: impl FnOnce(usize) -> Result<Give, Status>,
        done: Option<Done<()>>,
    ) -> Status {
        let _call = Call::enter();
        let Ok(found) = chained(chain, length) else {
            return Status::INVALID_PARAMETER; // NDK LAM-1
        };
        let give = match built(pages_of(&found.segments).len()) {
            Ok(give) => give,
            Err(status) => return status, // nothing was mapped (NDK LAM-7)
        };
        give(&self.lams.add(found.base, found.segments));
        let Some(done) = done else { return Status::SUCCESS }; // NDK LAM-11
        let pending = Pending::new(&self.deliverer, self.life.busy(), done);
        pending.resolve(Status::SUCCESS, ());
        returned(pending.settle())
    }

    /// `NdkReleaseLAM`: nothing is read or written through it any more when this returns.
    pub fn release_lam(&self, number: u64) {
        let _call = Call::enter();
        if let Some(lam) = self.lams.remove(number) {
            lam.release(&self.raw);
        }
    }
}

impl Pd {
    /// `NdkGetPrivilegedMemoryRegionToken`. Not a token of any memory, and never one (NDK PT-2).
    pub fn privileged_token(&self) -> Option<u32> {
        let reserve = || self.adapter.raw.reserve_region(self.raw).ok();
        let aliases = || reserve().map(|token| HashSet::from([token.0])).unwrap_or_default();
        self.aliases.get_or_init(aliases).iter().next().copied()
    }

    /// The list with each privileged entry's token replaced by that of the mapping it points into
    /// (NDK PT-3). `None`: there is none in it.
    pub(crate) fn resolved(&self, list: &[Sge]) -> Option<Vec<Sge>> {
        let aliases = self.aliases.get()?;
        let is_alias = |sge: &Sge| aliases.contains(&sge.token);
        if !list.iter().any(is_alias) {
            return None;
        }
        let resolve = |sge: &Sge| {
            let named = Some(sge).filter(|sge| is_alias(sge));
            let region = named.and_then(|sge| self.adapter.lams.at(sge.address)?.1.region(self));
            // Without a region the alias stays, which permits nothing.
            Sge { token: region.map_or(sge.token, |region| region.0), ..*sge }
        };
        Some(list.iter().map(resolve).collect())
    }
}
