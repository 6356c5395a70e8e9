//! The attributes by which the queue pair of an id moves.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Id, State};
use crate::abi::{access, ibv_ah_attr, ibv_global_route, ibv_qp_attr, mask, qps};
use crate::errno::{Errno, Result};
use crate::queue_pair::QueuePair;
use crate::{gid, resolution};

impl Id {
    /// The attributes of the way to a peer.
    pub(crate) fn address_attributes(&self, local: IpAddr, peer: IpAddr) -> ibv_ah_attr {
        let traffic_class = self.lock().traffic_class;
        self.addresses(local, peer, traffic_class)
    }

    fn addresses(&self, local: IpAddr, peer: IpAddr, traffic_class: u8) -> ibv_ah_attr {
        let index = self.context().index_of(local).unwrap_or(0);
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: crate::abi::gid_words(gid::bytes_of(peer)),
                sgid_index: u8::try_from(index).unwrap_or(0),
                hop_limit: 64,
                traffic_class,
                ..ibv_global_route::default()
            },
            is_global: 1,
            port_num: 1,
            ..ibv_ah_attr::default()
        }
    }

    /// The attributes by which a queue pair goes to a state, as the program sees them (Verbs V127).
    pub(crate) fn attributes(&self, state: u32) -> Result<(ibv_qp_attr, u32)> {
        let (mut attr, mask) = self.own_attributes(state)?;
        if mask & mask::DEST_QPN != 0 {
            attr.dest_qp_num = self.lock().shown_number();
        }
        Ok((attr, mask))
    }

    /// As [`Id::attributes`], where the number of this connection stands for the peer's queue pair (Verbs V128).
    pub(crate) fn own_attributes(&self, state: u32) -> Result<(ibv_qp_attr, u32)> {
        let inner = self.lock();
        let mut attr = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        if inner.datagrams.is_some() {
            (attr.port_num, attr.qkey) = (1, resolution::KEY);
            let mask = match state {
                qps::INIT => mask::PKEY_INDEX | mask::PORT | mask::QKEY,
                qps::RTR => 0,
                qps::RTS => mask::SQ_PSN,
                _ => return Err(Errno::EINVAL),
            };
            return Ok((attr, mask | mask::STATE));
        }
        let mask = match state {
            // The peer has not answered yet (Verbs V127).
            qps::RTR | qps::RTS if inner.state == State::Connecting => return Err(Errno::EINVAL),
            qps::INIT => {
                attr.port_num = 1;
                let connected = inner.connector.is_some() && inner.state != State::Connecting;
                if connected || inner.state == State::Requested {
                    attr.qp_access_flags = access::REMOTE_WRITE;
                    if inner.parameters.responder_resources > 0 {
                        attr.qp_access_flags |= access::REMOTE_READ | access::REMOTE_ATOMIC;
                    }
                }
                mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS
            }
            qps::RTR => {
                let (local, peer) =
                    (inner.local.ok_or(Errno::EINVAL)?, inner.peer.ok_or(Errno::EINVAL)?);
                attr.ah_attr = self.addresses(local.ip(), peer.ip(), inner.traffic_class);
                attr.path_mtu = crate::environment::mtu();
                attr.dest_qp_num = inner.alias;
                attr.max_dest_rd_atomic = inner.parameters.responder_resources;
                mask::AV
                    | mask::PATH_MTU
                    | mask::DEST_QPN
                    | mask::RQ_PSN
                    | mask::MAX_DEST_RD_ATOMIC
                    | mask::MIN_RNR_TIMER
            }
            qps::RTS => {
                // Those that the peer's program has given, where they have come (Verbs V126).
                let own = inner.parameters.retries();
                let retries = inner.peer_word.map_or(own, |word| word.retries);
                attr.timeout = inner.ack_timeout;
                attr.retry_cnt = retries.retry;
                attr.rnr_retry = retries.rnr;
                attr.max_rd_atomic = inner.parameters.initiator_depth;
                mask::TIMEOUT
                    | mask::RETRY_CNT
                    | mask::RNR_RETRY
                    | mask::SQ_PSN
                    | mask::MAX_QP_RD_ATOMIC
            }
            _ => return Err(Errno::EINVAL),
        };
        Ok((attr, mask | mask::STATE))
    }

    /// Move a queue pair up to a state.
    pub(crate) fn move_to(&self, queue_pair: &Arc<QueuePair>, to: u32) -> Result {
        for state in [qps::INIT, qps::RTR, qps::RTS].into_iter().filter(|state| *state <= to) {
            if state == qps::INIT && queue_pair.state() > qps::INIT {
                continue;
            }
            let (attr, mask) = self.own_attributes(state)?;
            queue_pair.modify(&attr, mask)?;
        }
        Ok(())
    }
}
