//! How requests end: the one table from the engine's statuses to those of completions (verbs 7.2).

use transom_engine::{Completion, CompletionFlags, CompletionKind, Status};

use crate::abi::{ibv_wc, status, wc};

/// The status of a completion.
#[inline]
pub(crate) fn of(ended: Status, kind: CompletionKind) -> u32 {
    match (ended, kind) {
        (Status::Success, _) => status::SUCCESS,
        (Status::Canceled, _) => status::WR_FLUSH_ERR,
        (Status::LocalAccess, _) => status::LOC_PROT_ERR,
        (Status::RemoteAccess, _) => status::REM_ACCESS_ERR,
        (Status::PeerReceiveTooSmall | Status::PeerInvalidRequest, _) => status::REM_INV_REQ_ERR,
        (Status::ReceiveTooSmall | Status::BufferOverflow, _) => status::LOC_LEN_ERR,
        (Status::RemoteError, _) => status::REM_OP_ERR,
        (Status::RetryExceeded | Status::IoTimeout, _) => status::RETRY_EXC_ERR,
        (Status::ReceiverNotReady, _) => status::RNR_RETRY_EXC_ERR,
        (Status::InvalidRequest, CompletionKind::Bind | CompletionKind::Invalidate) => {
            status::MW_BIND_ERR
        }
        (Status::InvalidRequest | Status::NotSupported, _) => status::LOC_QP_OP_ERR,
        _ => status::GENERAL_ERR,
    }
}

fn opcode(kind: CompletionKind) -> u32 {
    match kind {
        CompletionKind::Receive => wc::RECV,
        CompletionKind::ReceiveWrite => wc::RECV_RDMA_WITH_IMM,
        CompletionKind::Send => wc::SEND,
        CompletionKind::Write => wc::RDMA_WRITE,
        CompletionKind::Read => wc::RDMA_READ,
        CompletionKind::Bind => wc::BIND_MW,
        CompletionKind::Invalidate | CompletionKind::FastRegister => wc::LOCAL_INV,
        CompletionKind::CompareSwap | CompletionKind::Other => wc::COMP_SWAP,
        CompletionKind::FetchAdd => wc::FETCH_ADD,
    }
}

/// The kind of the header in front of a datagram, in its completion's `sl`.
const HEADER_IPV6: u8 = 0x9;
const HEADER_IPV4: u8 = 0xa;

/// A completion as programs see it.
#[inline]
pub(crate) fn entry(completion: &Completion) -> ibv_wc {
    let (mut flags, mut value) = (0, completion.value);
    if completion.flags.contains(CompletionFlags::INVALIDATED) {
        flags |= wc::WITH_INV;
    }
    if completion.flags.contains(CompletionFlags::IMMEDIATE) {
        flags |= wc::WITH_IMM;
        value = value.to_be(); // as the four bytes travelled
    }
    let (mut source, mut header) = (0, 0);
    if completion.flags.contains(CompletionFlags::DATAGRAM) {
        flags |= wc::GRH;
        source = completion.source.0;
        // As adapters of RoCE tell which header is in front of the payload (Verbs V141).
        let over_ipv6 = completion.flags.contains(CompletionFlags::OVER_IPV6);
        header = if over_ipv6 { HEADER_IPV6 } else { HEADER_IPV4 };
    }
    ibv_wc {
        wr_id: completion.request_context,
        status: of(completion.status, completion.kind),
        opcode: opcode(completion.kind),
        vendor_err: completion.denial as u32, // the low half: Verbs V57
        byte_len: completion.length,
        imm_data: value,
        qp_num: completion.queue_pair.0,
        src_qp: source,
        wc_flags: flags,
        sl: header,
        ..ibv_wc::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v92_every_situation_has_its_status() {
        use CompletionKind::{Bind, Invalidate, Read, Receive, Send};
        for (ended, kind, expected) in [
            (Status::Success, Send, 0),
            (Status::LocalAccess, Read, 4),
            (Status::RemoteAccess, Read, 10),
            (Status::PeerReceiveTooSmall, Send, 9),
            (Status::PeerInvalidRequest, Send, 9),
            (Status::ReceiveTooSmall, Receive, 1),
            (Status::LocalAccess, Receive, 4),
            (Status::RemoteError, Send, 11),
            (Status::InvalidRequest, Bind, 6),
            (Status::InvalidRequest, Invalidate, 6),
            (Status::InvalidRequest, Send, 2),
            (Status::RetryExceeded, Send, 12),
            (Status::ReceiverNotReady, Send, 13),
            (Status::Canceled, Receive, 5),
            (Status::InternalError, Send, 21),
        ] {
            assert_eq!(of(ended, kind), expected, "{ended:?} of {kind:?}");
        }
    }
}
