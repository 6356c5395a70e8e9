//! Which attributes a transition of a queue pair needs, and which it may bring (Verbs V61).

use transom_engine::QueuePairKind;

use crate::abi::mask::*;
use crate::abi::{ibv_qp_attr, qps};
use crate::errno::Result;
use crate::{explain, limits};

/// A transition. CUR_STATE and STATE are bits like the others, but STATE is never among them.
struct Row {
    from: u32,
    to: u32,
    required: u32,
    optional: u32,
}

const fn row(from: u32, to: u32, required: u32, optional: u32) -> Row {
    Row { from, to, required, optional }
}

use qps::{ERR, INIT, RESET, RTR, RTS, SQD, SQE};

static RELIABLE: [Row; 8] = [
    row(RESET, INIT, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    row(INIT, INIT, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    row(
        INIT,
        RTR,
        AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
    ),
    row(
        RTR,
        RTS,
        TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC,
        CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE,
    ),
    row(RTS, RTS, 0, CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE | MIN_RNR_TIMER),
    row(RTS, SQD, 0, EN_SQD_ASYNC_NOTIFY),
    row(
        SQD,
        SQD,
        0,
        PORT | AV
            | TIMEOUT
            | RETRY_CNT
            | RNR_RETRY
            | MAX_QP_RD_ATOMIC
            | MAX_DEST_RD_ATOMIC
            | ALT_PATH
            | ACCESS_FLAGS
            | PKEY_INDEX
            | MIN_RNR_TIMER
            | PATH_MIG_STATE,
    ),
    row(SQD, RTS, 0, CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE),
];

static UNRELIABLE: [Row; 9] = [
    row(RESET, INIT, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    row(INIT, INIT, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    row(INIT, RTR, AV | PATH_MTU | DEST_QPN | RQ_PSN, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX),
    row(RTR, RTS, SQ_PSN, CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE),
    row(RTS, RTS, 0, CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE),
    row(RTS, SQD, 0, EN_SQD_ASYNC_NOTIFY),
    row(SQD, SQD, 0, AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE),
    row(SQD, RTS, 0, CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE),
    row(SQE, RTS, 0, CUR_STATE | ACCESS_FLAGS),
];

/// As the reliable ones. What its missing receive side would need may be left out; perftest brings it.
static XRC_SEND: [Row; 8] = [
    row(RESET, INIT, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    row(INIT, INIT, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    row(
        INIT,
        RTR,
        AV | PATH_MTU | DEST_QPN | RQ_PSN,
        MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
    ),
    row(
        RTR,
        RTS,
        TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC,
        CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE,
    ),
    row(RTS, RTS, 0, CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE),
    row(RTS, SQD, 0, EN_SQD_ASYNC_NOTIFY),
    row(
        SQD,
        SQD,
        0,
        PORT | AV
            | TIMEOUT
            | RETRY_CNT
            | RNR_RETRY
            | MAX_QP_RD_ATOMIC
            | ALT_PATH
            | ACCESS_FLAGS
            | PKEY_INDEX
            | PATH_MIG_STATE,
    ),
    row(SQD, RTS, 0, CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE),
];

/// Rows of an XRC queue pair without a send queue.
static XRC_RECEIVE: [Row; 8] = [
    row(RESET, INIT, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    row(INIT, INIT, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    row(
        INIT,
        RTR,
        AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
    ),
    row(
        RTR,
        RTS,
        TIMEOUT | SQ_PSN,
        RETRY_CNT
            | RNR_RETRY
            | MAX_QP_RD_ATOMIC
            | CUR_STATE
            | ALT_PATH
            | ACCESS_FLAGS
            | MIN_RNR_TIMER
            | PATH_MIG_STATE,
    ),
    row(RTS, RTS, 0, CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE | MIN_RNR_TIMER),
    row(RTS, SQD, 0, EN_SQD_ASYNC_NOTIFY),
    row(
        SQD,
        SQD,
        0,
        PORT | AV
            | TIMEOUT
            | MAX_DEST_RD_ATOMIC
            | ALT_PATH
            | ACCESS_FLAGS
            | PKEY_INDEX
            | MIN_RNR_TIMER
            | PATH_MIG_STATE,
    ),
    row(SQD, RTS, 0, CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE),
];

static DATAGRAMS: [Row; 9] = [
    row(RESET, INIT, PKEY_INDEX | PORT | QKEY, 0),
    row(INIT, INIT, 0, PKEY_INDEX | PORT | QKEY),
    row(INIT, RTR, 0, PKEY_INDEX | QKEY),
    row(RTR, RTS, SQ_PSN, CUR_STATE | QKEY),
    row(RTS, RTS, 0, CUR_STATE | QKEY),
    row(RTS, SQD, 0, EN_SQD_ASYNC_NOTIFY),
    row(SQD, SQD, 0, PKEY_INDEX | QKEY),
    row(SQD, RTS, 0, CUR_STATE | QKEY),
    row(SQE, RTS, 0, CUR_STATE | QKEY),
];

fn rows(kind: QueuePairKind) -> &'static [Row] {
    match kind {
        QueuePairKind::Rc => &RELIABLE,
        QueuePairKind::Uc => &UNRELIABLE,
        QueuePairKind::Ud => &DATAGRAMS,
        QueuePairKind::XrcSend => &XRC_SEND,
        QueuePairKind::XrcReceive => &XRC_RECEIVE,
    }
}

const STATES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];

fn name(state: u32) -> &'static str {
    STATES.get(state as usize).copied().unwrap_or("no state")
}

const BITS: [(u32, &str); 20] = [
    (CUR_STATE, "CUR_STATE"),
    (EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"),
    (ACCESS_FLAGS, "ACCESS_FLAGS"),
    (PKEY_INDEX, "PKEY_INDEX"),
    (PORT, "PORT"),
    (QKEY, "QKEY"),
    (AV, "AV"),
    (PATH_MTU, "PATH_MTU"),
    (TIMEOUT, "TIMEOUT"),
    (RETRY_CNT, "RETRY_CNT"),
    (RNR_RETRY, "RNR_RETRY"),
    (RQ_PSN, "RQ_PSN"),
    (MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"),
    (ALT_PATH, "ALT_PATH"),
    (MIN_RNR_TIMER, "MIN_RNR_TIMER"),
    (SQ_PSN, "SQ_PSN"),
    (MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"),
    (PATH_MIG_STATE, "PATH_MIG_STATE"),
    (DEST_QPN, "DEST_QPN"),
    (1 << 17, "CAP"),
];

/// The bits of a mask, as programs write them without their prefix `IBV_QP_`.
fn bits(mask: u32) -> String {
    let mut rest = mask;
    let mut words = Vec::new();
    for (bit, word) in BITS.into_iter().filter(|(bit, _)| mask & bit != 0) {
        rest &= !bit;
        words.push(word.to_owned());
    }
    if rest != 0 {
        words.push(format!("{rest:#x}"));
    }
    words.join(", ")
}

/// The state that `attr` with `mask` leads to from `current`: `EINVAL` if the mask lacks a bit that
/// the transition requires, or has one that it does not know.
pub(crate) fn target(
    kind: QueuePairKind,
    current: u32,
    attr: &ibv_qp_attr,
    mask: u32,
) -> Result<u32> {
    let to = if mask & STATE == 0 { current } else { attr.qp_state };
    let asked = mask & !STATE;
    let change = || format!("ibv_modify_qp, {} to {}", name(current), name(to));
    let superfluous = |known: u32| {
        explain::invalid(|| format!("{}: takes no {}", change(), bits(asked & !known)))
    };
    if matches!(to, RESET | ERR) && mask & STATE != 0 {
        return if asked & !CUR_STATE == 0 { Ok(to) } else { Err(superfluous(CUR_STATE)) };
    }
    let row = rows(kind).iter().find(|row| (row.from, row.to) == (current, to));
    let row = row.ok_or_else(|| {
        explain::invalid(|| format!("{}: a queue pair of this type has no such way", change()))
    })?;
    let missing = row.required & !asked;
    if missing != 0 {
        return Err(explain::invalid(|| format!("{}: lacks {}", change(), bits(missing))));
    }
    if asked & !(row.required | row.optional) != 0 {
        return Err(superfluous(row.required | row.optional));
    }
    if mask & CUR_STATE != 0 && attr.cur_qp_state != current {
        return Err(explain::invalid(|| {
            format!("{}: cur_qp_state says {}", change(), name(attr.cur_qp_state))
        }));
    }
    Ok(to)
}

/// The values of the attributes in `mask`, but for addresses (Verbs V62).
pub(crate) fn values(attr: &ibv_qp_attr, mask: u32) -> Result {
    let reads = limits::READS as u8;
    let mtu = crate::environment::mtu();
    let limits = [
        (PKEY_INDEX, "pkey_index", attr.pkey_index.into(), 0, 0),
        (PORT, "port_num", attr.port_num.into(), 1, 1),
        (MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic.into(), 0, reads.into()),
        (MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr.max_dest_rd_atomic.into(), 0, reads.into()),
        (PATH_MTU, "path_mtu", attr.path_mtu, 1, mtu),
        (TIMEOUT, "timeout", attr.timeout.into(), 0, 31),
        (RETRY_CNT, "retry_cnt", attr.retry_cnt.into(), 0, 7),
        (RNR_RETRY, "rnr_retry", attr.rnr_retry.into(), 0, 7),
        (MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer.into(), 0, 31),
        (ACCESS_FLAGS, "qp_access_flags", attr.qp_access_flags, 0, (1 << 10) - 1),
    ];
    for (bit, name, value, least, most) in limits {
        let value: u32 = value;
        if mask & bit != 0 && !(least..=most).contains(&value) {
            return Err(explain::invalid(|| {
                format!("ibv_modify_qp: {name} is {value}, and may be {least} to {most}")
            }));
        }
    }
    Ok(())
}

/// Keep the attributes in `mask`.
pub(crate) fn keep(kept: &mut ibv_qp_attr, attr: &ibv_qp_attr, mask: u32) {
    macro_rules! keep {
        ($($bit:ident: $($member:ident),*;)*) => {
            $(if mask & $bit != 0 { $(kept.$member = attr.$member;)* })*
        };
    }
    keep! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah_attr;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        ALT_PATH: alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    const KINDS: [QueuePairKind; 5] = [
        QueuePairKind::Rc,
        QueuePairKind::Uc,
        QueuePairKind::Ud,
        QueuePairKind::XrcSend,
        QueuePairKind::XrcReceive,
    ];
    const RC: QueuePairKind = QueuePairKind::Rc;

    fn to(state: u32) -> ibv_qp_attr {
        ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() }
    }

    /// As rdma-unit-test does: each required bit is left out alone.
    #[test]
    fn v61_each_required_bit_is_required() {
        for (kind, row) in KINDS.iter().flat_map(|kind| rows(*kind).iter().map(|row| (*kind, row)))
        {
            let full = STATE | row.required;
            assert_eq!(target(kind, row.from, &to(row.to), full), Ok(row.to));
            for bit in (0..32).map(|bit| 1 << bit).filter(|bit| row.required & bit != 0) {
                assert_eq!(target(kind, row.from, &to(row.to), full & !bit), Err(Errno::EINVAL));
            }
        }
    }

    #[test]
    fn v61_every_type_needs_its_first_packet_number_to_send() {
        for kind in KINDS {
            let row = rows(kind).iter().find(|row| (row.from, row.to) == (RTR, RTS)).unwrap();
            assert_eq!(row.required & SQ_PSN, SQ_PSN);
        }
        let most = AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
        let rtr = KINDS.map(|kind| {
            rows(kind).iter().find(|row| (row.from, row.to) == (INIT, RTR)).unwrap().required
        });
        let least = AV | PATH_MTU | DEST_QPN | RQ_PSN;
        assert_eq!(rtr, [most, least, 0, least, most]);
    }

    #[test]
    fn v61_a_bit_that_the_transition_does_not_know_is_refused() {
        for (kind, row) in KINDS.iter().flat_map(|kind| rows(*kind).iter().map(|row| (*kind, row)))
        {
            for bit in (1..32).map(|bit| 1_u32 << bit) {
                let mut attr = to(row.to);
                attr.cur_qp_state = row.from;
                let known = (row.required | row.optional) & bit != 0;
                let asked = target(kind, row.from, &attr, STATE | row.required | bit);
                assert_eq!(asked.is_ok(), known, "{} to {}: {bit:#x}", row.from, row.to);
            }
        }
    }

    #[test]
    fn v61_from_every_state_to_reset_and_err() {
        for from in 0..=6 {
            assert_eq!(target(RC, from, &to(RESET), STATE), Ok(RESET));
            assert_eq!(target(RC, from, &to(ERR), STATE), Ok(ERR));
            assert_eq!(target(RC, from, &to(ERR), STATE | AV), Err(Errno::EINVAL));
        }
        assert_eq!(target(RC, RESET, &to(RTR), STATE), Err(Errno::EINVAL));
        assert_eq!(
            target(RC, ERR, &to(INIT), STATE | PKEY_INDEX | PORT | ACCESS_FLAGS),
            Err(Errno::EINVAL)
        );
    }

    #[test]
    fn v61_without_state_attributes_of_the_present_state_change() {
        assert_eq!(target(RC, RTS, &to(0), MIN_RNR_TIMER), Ok(RTS));
        assert_eq!(target(RC, RTS, &to(0), AV), Err(Errno::EINVAL));
    }

    #[test]
    fn v61_a_current_state_must_be_the_true_one() {
        let mut attr = to(RTS);
        attr.cur_qp_state = RTR;
        assert_eq!(target(RC, RTS, &attr, STATE | CUR_STATE), Err(Errno::EINVAL));
        attr.cur_qp_state = RTS;
        assert_eq!(target(RC, RTS, &attr, STATE | CUR_STATE), Ok(RTS));
    }

    #[test]
    fn v62_values_at_their_limits() {
        let mut attr = ibv_qp_attr { port_num: 1, path_mtu: 5, ..ibv_qp_attr::default() };
        attr.max_rd_atomic = 16;
        attr.dest_qp_num = u32::MAX; // whatever it names: nothing answers there
        attr.timeout = 31;
        let all = PORT | PATH_MTU | MAX_QP_RD_ATOMIC | DEST_QPN | TIMEOUT;
        assert_eq!(values(&attr, all), Ok(()));
        for (bit, wrong) in [
            (PORT, ibv_qp_attr { port_num: 2, ..attr }),
            (PATH_MTU, ibv_qp_attr { path_mtu: 6, ..attr }),
            (PATH_MTU, ibv_qp_attr { path_mtu: 0, ..attr }),
            (MAX_QP_RD_ATOMIC, ibv_qp_attr { max_rd_atomic: 17, ..attr }),
            (TIMEOUT, ibv_qp_attr { timeout: 32, ..attr }),
        ] {
            assert_eq!(values(&wrong, all), Err(Errno::EINVAL));
            assert_eq!(values(&wrong, all & !bit), Ok(()));
        }
    }
}
