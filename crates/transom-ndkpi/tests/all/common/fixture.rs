//! A connected pair with scattered pages, for mappings and fast registration.

use transom_ndkpi::flags::{mr as flag, op};

use super::*;

pub const R: u32 = op::ALLOW_REMOTE_READ;
pub const W: u32 = op::ALLOW_REMOTE_WRITE;
pub const L: u32 = op::ALLOW_LOCAL_WRITE;
pub const INVALID: Status = Status::INVALID_PARAMETER;
/// The address of byte 0 of what the tests register: no address of the memory itself.
pub const BASE: u64 = 0x7700_0000_0000;

/// Scattered pages under an address where nothing is mapped.
pub fn scattered(pages: &Pages) -> List {
    assert!(!is_mapped(NOWHERE));
    List::new(NOWHERE, 2 * PAGE).over(&[2, 0, 3].map(|page| pages.page(page)))
}

/// An adapter alone, in every mode.
pub fn alone(test: impl Fn(Ptr, &Pages)) {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pages = Pages::new(4);
        test(adapter, &pages);
        close_adapter(adapter);
    });
}

/// A connected pair; the server has a region for fast registration, a mapping of its pages, and
/// the client some memory.
pub struct Fixture {
    pub client: Side,
    pub server: Side,
    pub own: Pages,
    pub own_mr: (Ptr, u32),
    pub target: Pages,
    pub lam: Lam,
    pub fast: Ptr,
}

impl Fixture {
    pub fn new(mode: Mode) -> Fixture {
        Fixture::with(options(mode), options(mode))
    }
    pub fn with(client: OpenOptions, server: OpenOptions) -> Fixture {
        let (client, server) = pair_with(client, server);
        let (target, own) = (Pages::new(4), Pages::new(1));
        target.fill(|i| (i / PAGE * 50 + i % 199) as u8);
        let own_mr = client.mr(&own, flag::ALLOW_LOCAL_WRITE);
        let lam = lam(server.adapter, &target.mdl(), target.len());
        let fast = frmr(server.pd, 16, true);
        Fixture { client, server, own, own_mr, target, lam, fast }
    }
    /// All pages, from the first byte on, at BASE.
    pub fn register(&self, flags: u32) -> u32 {
        let place = (0, self.target.len(), BASE);
        let posted = self.server.fast_register(self.fast, self.lam.pages(), place, flags);
        assert_eq!(posted, Status::SUCCESS);
        let result = self.server.results(1)[0];
        assert_eq!((result.request_context.addr(), Status(result.status)), (0xfa, Status::SUCCESS));
        assert_eq!(result.operation, 4, "NdkOperationTypeFastRegister");
        token(self.fast)
    }
    pub fn invalidate(&self) {
        assert_eq!(self.server.invalidate(self.fast), Status::SUCCESS);
        assert_eq!(self.server.one(), (0x1f, Status::SUCCESS, 0));
    }
    pub fn read(&self, at: u64, length: u32, token: u32) -> Status {
        let sge = self.own.sge(self.own_mr.1, 0, length);
        assert_eq!(self.client.read(1, &[sge], at, token), Status::SUCCESS);
        self.client.one().1
    }
    pub fn write(&self, at: u64, length: u32, token: u32) -> Status {
        let sge = self.own.sge(self.own_mr.1, 0, length);
        assert_eq!(self.client.write(1, &[sge], at, token), Status::SUCCESS);
        self.client.one().1
    }
    pub fn end(mut self, extra: &[Ptr]) {
        self.client.end(&[self.own_mr.0]);
        self.lam.release(self.server.adapter);
        self.server.end(&[extra, &[self.fast]].concat());
    }
}
