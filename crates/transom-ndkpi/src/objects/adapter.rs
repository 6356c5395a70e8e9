//! Adapters: open, query, and a close that waits (NDK 4.1, LT-11).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use transom_engine::{dialect, raw};
use transom_memory::Token;

use super::lam::Lams;
use super::{ConnectEvent, Connector, Cq, CqNotification, Listener, Pd, SharedEndpoint};
use crate::deliver::{Deliverer, Mode};
use crate::flags::adapter as flag;
use crate::life::Life;
use crate::types::{AdapterInfo, Version};
use crate::{Status, limits};

/// Choices at open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// When completions are delivered.
    pub mode: Mode,
    /// The adapter does not set `RDMA_READ_SINK_NOT_REQUIRED`: the sink of a Read must have been
    /// registered with `RDMA_READ_SINK` (NDK MR-15).
    pub read_sink_needed: bool,
    /// Most registrations at a time; more are `INSUFFICIENT_RESOURCES`. `None`: what memory holds.
    pub max_registrations: Option<u64>,
}

/// An open adapter.
#[derive(Debug)]
pub struct Adapter {
    pub(crate) raw: raw::Adapter,
    pub(crate) deliverer: Deliverer,
    pub(crate) life: Arc<Life>,
    pub(crate) options: Options,
    pub(crate) version: Version,
    pub(crate) lams: Lams,
    registrations: AtomicU64,
}

/// The version that a request gets: the highest minor of its major, if the request's minor does not
/// lie above it (NDK 1).
pub(crate) fn negotiate(asked: Version) -> Result<Version, Status> {
    let highest = match asked.major {
        1 => 2,
        2 => 1,
        _ => return Err(Status::BAD_VERSION),
    };
    if asked.minor > highest {
        return Err(Status::BAD_VERSION);
    }
    Ok(Version { major: asked.major, minor: highest })
}

impl Adapter {
    /// Open the adapter of a local address.
    ///
    /// # Errors
    /// `BAD_VERSION` for another major version, or a minor one that is too high; `INVALID_ADDRESS`
    /// if no interface has the address; `INSUFFICIENT_RESOURCES`.
    pub fn open(
        version: Version,
        address: SocketAddr,
        options: Options,
    ) -> Result<Arc<Adapter>, Status> {
        let version = negotiate(version)?;
        let marked = options.read_sink_needed;
        let engine = raw::Options {
            dialect: if marked { &dialect::NDK_MARKED_SINKS } else { &dialect::NDK },
            largest_region: limits::REGION,
            largest_transfer: u64::from(limits::TRANSFER),
            explain_calls: raw::Environment::read().explain,
            ..raw::Options::from_env()
        };
        let raw = raw::Adapter::open(address.ip(), engine)?;
        let deliverer = Deliverer::new(options.mode).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        let life = Life::new(&deliverer, &[]);
        let registrations = AtomicU64::new(0);
        let lams = Lams::default();
        Ok(Arc::new(Adapter { raw, deliverer, life, options, version, lams, registrations }))
    }

    /// `NdkQueryAdapterInfo`.
    #[must_use]
    pub fn info(&self) -> AdapterInfo {
        let mut adapter_flags = flag::IN_ORDER_DMA_SUPPORTED
            | flag::LOOPBACK_CONNECTIONS_SUPPORTED
            | flag::CQ_RESIZE_SUPPORTED
            | flag::CQ_INTERRUPT_MODERATION_SUPPORTED;
        if !self.options.read_sink_needed {
            adapter_flags |= flag::RDMA_READ_SINK_NOT_REQUIRED;
        }
        AdapterInfo { version: self.version, adapter_flags, ..limits::info(&self.raw) }
    }

    /// `NdkCreatePd`.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`, `DEVICE_REMOVED`.
    pub fn create_pd(self: &Arc<Self>) -> Result<Arc<Pd>, Status> {
        Pd::new(self)
    }

    /// `NdkCreateCq`.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for a depth above the adapter's, `INSUFFICIENT_RESOURCES`,
    /// `DEVICE_REMOVED`.
    pub fn create_cq(
        self: &Arc<Self>,
        depth: u32,
        notification: Option<CqNotification>,
    ) -> Result<Arc<Cq>, Status> {
        if depth > self.info().max_cq_depth {
            return Err(Status::INVALID_PARAMETER);
        }
        Cq::new(self, depth, notification)
    }

    /// `NdkCreateConnector`.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`, `DEVICE_REMOVED`.
    pub fn create_connector(self: &Arc<Self>) -> Result<Arc<Connector>, Status> {
        Connector::new(self)
    }

    /// `NdkCreateSharedEndpoint`. Port 0: one of the system's choice.
    ///
    /// # Errors
    /// `INVALID_ADDRESS` for an address that is not the adapter's, `SHARING_VIOLATION` and
    /// `TOO_MANY_ADDRESSES` for its port, `INSUFFICIENT_RESOURCES`, `DEVICE_REMOVED`.
    pub fn create_shared_endpoint(
        self: &Arc<Self>,
        address: SocketAddr,
    ) -> Result<Arc<SharedEndpoint>, Status> {
        SharedEndpoint::new(self, address)
    }

    /// `NdkCreateListener`.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`, `DEVICE_REMOVED`.
    pub fn create_listener(self: &Arc<Self>, event: ConnectEvent) -> Result<Arc<Listener>, Status> {
        Listener::new(self, event)
    }

    /// Close: waits for every object, and for every callback to have returned. Not from a callback.
    /// Mappings that the consumer has forgotten end with it (NDK LT-17): no queue pair is left to
    /// use one.
    pub fn close(&self) {
        self.life.close_and_wait();
    }

    /// The record that a completion's `provider_error_code` names, as a sentence.
    #[must_use]
    pub fn explain(&self, code: u32) -> Option<String> {
        self.raw.denial(u64::from(code)).map(|record| record.cause.to_string())
    }

    /// Give the region or window of a token a name, for messages and for `transom show`.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` if the token names nothing that is open.
    pub fn name(&self, token: u32, name: &str) -> Result<(), Status> {
        self.raw.set_name(Token(token), name).then_some(()).ok_or(Status::INVALID_PARAMETER)
    }

    /// Whether `address` is this adapter's, with any port. A wildcard is not: it names every
    /// interface of the host.
    pub(crate) fn has_address(&self, address: SocketAddr) -> bool {
        address.ip() == self.raw.address()
    }

    pub(crate) fn admit_registration(&self) -> Result<(), Status> {
        let before = self.registrations.fetch_add(1, Ordering::Relaxed);
        if self.options.max_registrations.is_some_and(|most| before >= most) {
            self.registration_gone();
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        Ok(())
    }

    pub(crate) fn registration_gone(&self) {
        self.registrations.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NDK 1: the highest minor of the major that was asked for, or BAD_VERSION.
    #[test]
    fn version_negotiation() {
        let v = |major, minor| Version { major, minor };
        for (asked, got) in [
            (v(1, 0), Ok(v(1, 2))),
            (v(1, 1), Ok(v(1, 2))),
            (v(1, 2), Ok(v(1, 2))),
            (v(2, 1), Ok(v(2, 1))),
            (v(1, 3), Err(Status::BAD_VERSION)),
            (v(2, 0), Ok(v(2, 1))),
            (v(2, 2), Err(Status::BAD_VERSION)),
            (v(0, 0), Err(Status::BAD_VERSION)),
            (v(3, 0), Err(Status::BAD_VERSION)),
        ] {
            assert_eq!(negotiate(asked), got);
        }
    }
}
