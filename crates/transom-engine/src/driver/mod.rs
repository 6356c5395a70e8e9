//! Links, threads and time: the part that moves bytes between sockets and the state machines.
//!
//! Imports point down only:
//!
//! | folder | what is there |
//! |---|---|
//! | `objects` | connectors, listeners, queue pairs and their queues: a core state machine each, with its lock, its links and its waiters |
//! | `link` | one connection's lock, phases and carrier (TCP or shared memory), a pass over it, and the events it leaves behind |
//! | `schedule` | which thread looks at which link, and when: epoll, timers, leases, waiters, the background thread |
//! | `limits` | what peers may take before they are accepted, and how often they may guess |
//! | `inspect` | answers processes of this user: what is registered, and which peers tried to touch it |
//! | `grants` | the ledger of grants that is printed when the process exits |
//! | `capture` | everything that a process sends and takes, as a file that Wireshark reads |
//! | `observe` | spans and events of the crate `tracing`, with the feature of this name |
//! | `config` | an adapter's options, what the environment asks for, and the path that bytes take |

mod capture;
mod config;
mod grants;
mod inspect;
mod limits;
mod link;
mod objects;
mod observe;
mod schedule;

pub use config::capture::{CaptureOptions, CaptureRing};
pub use config::environment::Environment;
pub use config::options::{EventSink, Explain, GrantLedger, Options, Resets, Trace};
pub use config::path::{Path, PathReason};
pub use grants::LEDGER_STATUS;
pub use limits::admission::HalfOpen;
pub use limits::descriptors::{DescriptorShare, HeldDescriptor};
pub use limits::guess_limiter::GuessLimit;
pub use link::notifications::Sink;
pub use link::silence::Silence;
pub use schedule::spin::Spin;
pub use schedule::traffic::Traffic;

pub(crate) use capture::begin as begin_capture;
pub(crate) use config::options::status_of;
pub(crate) use grants::{begin as begin_ledger, end as end_ledger};
pub(crate) use inspect::{begin as begin_inspection, end as end_inspection, open_metrics};
pub(crate) use limits::refused_connects::ConnectRefusal;
pub(crate) use link::Link;
pub(crate) use link::notifications::Notifications;
pub(crate) use objects::connector::Connector;
pub(crate) use objects::cq::Cq;
pub(crate) use objects::datagram_port::DatagramPort;
pub(crate) use objects::listener::Listener;
pub(crate) use objects::port_map::{MappedPort, PortQuestion};
pub(crate) use objects::qp::Qp;
pub(crate) use objects::srq::Srq;
pub(crate) use objects::wait_timer;
pub(crate) use objects::xrc::{Target, Targets, XrcDomain};
pub(crate) use observe::close as observe_close;
pub(crate) use schedule::regions::SharedRegion;
pub(crate) use schedule::shared::Shared;
#[cfg(all(test, not(windows)))]
pub(crate) use schedule::source::Looked;
#[cfg(test)]
pub(crate) use schedule::source::Source;
#[cfg(all(test, not(windows)))]
pub(crate) use schedule::spin::SpinWindow;
