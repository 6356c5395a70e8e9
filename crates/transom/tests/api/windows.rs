//! Windows: what a peer may do, and what the owner and the peer learn of a refusal.

use std::sync::atomic::Ordering;

use transom::{
    Adapter, Blame, ErrorKind, Grant, MappedFile, Mistake, Path, QueuePair, Rights, Rule,
};

use crate::{Pair, bytes, here, until};

#[test]
fn writes_arrive_and_the_last_byte_says_so() {
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; 100_000]).unwrap();
    let (_window, grant) = pair.lend(&memory, Rights::WRITE);
    let mut sent = bytes(100_000);
    sent[99_999] = 0xaa;
    let source = pair.peer_adapter.register(sent.clone()).unwrap();
    let posted = pair.peer.write(grant, source.slice(..)).unwrap();
    // The owner does nothing but watch: the adapter's own thread moves the bytes.
    let bell = memory.atomic_u8(99_999).unwrap();
    until("it never arrived", || bell.load(Ordering::Acquire) == 0xaa);
    let mut seen = vec![0; 100_000];
    memory.copy_out(0, &mut seen).unwrap();
    assert!(seen == sent, "all of it is there when its last byte is");
    posted.wait().unwrap();
}

#[test]
fn a_window_allows_what_it_says_and_nothing_else() {
    for (rights, write) in [(Rights::READ, true), (Rights::WRITE, false), (Rights::NONE, false)] {
        let pair = Pair::new();
        let memory = pair.owner_adapter.register(vec![1; 64]).unwrap();
        let (_window, grant) = pair.lend(&memory, rights);
        let local = pair.peer_adapter.register(vec![2; 64]).unwrap();
        let posted = if write {
            pair.peer.write(grant, local.slice(..))
        } else {
            pair.peer.read(grant, local.slice(..))
        };
        let refused = posted.unwrap().wait().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{rights}: {refused}");
        // The owner has the whole record.
        let ended = pair.owner.recv().wait().unwrap_err();
        let denial = ended.denial().unwrap_or_else(|| panic!("no record in {ended:?}"));
        assert_eq!(denial.rule, transom::Rule::Right, "{ended}");
        assert_eq!(denial.likely, transom::Mistake::MissingRight);
        assert_eq!(pair.owner_adapter.counters().refused, 1);
        let (mut ours, mut theirs) = ([0; 64], [0; 64]);
        memory.copy_out(0, &mut ours).unwrap();
        local.copy_out(0, &mut theirs).unwrap();
        assert_eq!((ours, theirs), ([1; 64], [2; 64]), "not a byte has moved");
    }
}

/// Design rule 3: the whole extent of a Write is known to its owner before the first byte moves,
/// however many frames it is. With a byte too many none is written.
#[test]
fn of_a_long_write_that_sticks_out_no_byte_moves() {
    const LENGTH: u64 = 1_000_000;
    let pair = Pair::new();
    let memory = pair.owner_adapter.register(vec![0; LENGTH as usize]).unwrap();
    let window = pair.owner.bind(&memory, ..LENGTH - 1, Rights::WRITE).unwrap();
    pair.owner.send(window.grant().to_bytes()).unwrap().wait().unwrap();
    let grant = Grant::from_bytes(&pair.peer.recv().wait().unwrap()).unwrap();
    let source = pair.peer_adapter.register(vec![7; LENGTH as usize]).unwrap();
    let refused = pair.peer.write(grant, source.slice(..)).unwrap().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    let ended = pair.owner.recv().wait().unwrap_err();
    assert_eq!(ended.denial().unwrap().rule, transom::Rule::Bounds, "{ended}");
    window.revoke().wait().unwrap();
    let bytes = memory.deregister().wait().unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "a byte has moved");
}

#[test]
fn what_makes_no_sense_is_refused_before_it_is_posted() {
    let pair = Pair::new();
    let adapter = &pair.peer_adapter;
    let region = adapter.register(vec![0; 64]).unwrap();
    assert_eq!(adapter.register(Vec::new()).unwrap_err().kind(), ErrorKind::Invalid);
    let grant = Grant::from_parts(1, 2, 65, Rights::READ);
    let short = pair.peer.read(grant, region.slice(..)).unwrap_err();
    assert!(short.to_string().contains("64 bytes"), "{short}");
    let long = pair.peer.send(vec![0; QueuePair::SEND_LIMIT + 1]).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::TooMuch);
    assert!(long.to_string().contains("send_from"), "{long}");
    assert!(region.copy_out(60, &mut [0; 8]).is_err());
    assert!(region.copy_in(u64::MAX, &[0; 8]).is_err());
    assert!(region.atomic_u8(64).is_err());
    let aligned = (0..8).filter(|at| region.atomic_u64(*at).is_ok()).count();
    assert_eq!(aligned, 1, "one offset in eight");
    // A region of another adapter, and a window outside the region.
    let foreign = pair.owner_adapter.register(vec![0; 64]).unwrap();
    for wrong in [
        pair.peer.bind(&foreign, .., Rights::READ).unwrap_err(),
        pair.peer.bind(&region, ..65, Rights::READ).unwrap_err(),
        pair.peer.send_from(foreign.slice(..)).unwrap_err(),
    ] {
        assert_eq!(wrong.blame(), Blame::Caller, "{wrong}");
    }
    // The connection is none the worse for it.
    pair.peer.send(b"still here").unwrap().wait().unwrap();
    assert_eq!(&*pair.owner.recv().wait().unwrap(), b"still here");
}

/// ND2 W7.
#[test]
fn a_window_for_writing_on_read_only_memory_is_refused() {
    let pair = Pair::new();
    let file = MappedFile::open(std::env::current_exe().unwrap()).unwrap();
    let file = pair.owner_adapter.register(file).unwrap();
    let refused = pair.owner.bind(&file, ..64, Rights::WRITE).unwrap_err();
    assert_eq!(refused.blame(), Blame::Caller, "{refused}");
    assert_eq!(file.copy_in(0, &[0]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(file.atomic_u8(0).is_err());
}

/// A range that wraps around the address space is explained to both sides, over every path.
#[test]
fn a_range_that_wraps_around_is_explained_over_every_path() {
    for path in [Path::Tcp, Path::Process] {
        for (write, length) in [(true, 16), (true, 200_000), (false, 16)] {
            let open = || Adapter::options().path(path).open(here().ip()).unwrap();
            let pair = Pair::of(open(), open(), (16, 4096));
            let memory = pair.owner_adapter.register(vec![0; 64]).unwrap();
            let (_window, grant) = pair.lend(&memory, Rights::READ | Rights::WRITE);
            let wraps = Grant::from_parts(grant.token(), u64::MAX - 7, length, grant.rights());
            let local = pair.peer_adapter.register(vec![0; length as usize]).unwrap();
            let slice = local.slice(..);
            let post =
                if write { pair.peer.write(wraps, slice) } else { pair.peer.read(wraps, slice) };
            let refused = post.unwrap().wait().unwrap_err();
            let name = format!("{}, {length} bytes, write: {write}", pair.owner.info().path);
            assert_eq!(refused.kind(), ErrorKind::Refused, "{name}: {refused}");
            let told = refused.explanation().unwrap_or_default();
            assert!(told.contains("only 8 bytes left"), "{name}: {refused}");
            let ended = pair.owner.recv().wait().unwrap_err();
            let denial = ended.denial().map(|denial| (denial.rule, denial.likely));
            assert_eq!(denial, Some((Rule::Wrap, Mistake::WrapsAround)), "{name}: {ended}");
        }
    }
}

/// The owner decides who learns more than the class of rule.
#[test]
fn the_owner_decides_which_peers_learn_why() {
    for (explain, told) in [(transom::Explain::Nobody, false), (transom::Explain::Everyone, true)] {
        let owner = Adapter::options().explain(explain).open(here().ip()).unwrap();
        let pair = Pair::of(owner, Adapter::open(here().ip()).unwrap(), (16, 4096));
        let sink = pair.peer_adapter.register(vec![0; 8]).unwrap();
        let guess = Grant::from_parts(0x1234_5678, 0x1000, 8, Rights::READ);
        let refused = pair.peer.read(guess, sink.slice(..)).unwrap().wait().unwrap_err();
        assert_eq!(refused.explanation().is_some(), told, "{explain:?}: {refused}");
        let ended = pair.owner.recv().wait().unwrap_err();
        assert!(ended.denial().is_some(), "the owner always knows: {ended}");
    }
}

/// A call that is refused at once is no reason why its connection ends later.
#[test]
fn a_refused_bind_ends_no_connection_and_explains_no_end() {
    let pair = Pair::new();
    let region = pair.owner_adapter.register(vec![0_u8; 64].into_boxed_slice()).unwrap();
    let before = pair.owner_adapter.counters().refused;
    let refused = pair.owner.bind(&region, ..0, Rights::READ).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert_eq!(pair.owner_adapter.counters().refused, before + 1, "it is counted");
    pair.peer.send(b"goes on").unwrap().wait().unwrap();
    assert_eq!(&pair.owner.recv().wait().unwrap()[..], b"goes on");
    pair.peer.disconnect().unwrap();
    let ended = pair.owner.recv().wait().unwrap_err();
    assert!(!ended.to_string().contains("bind"), "{ended}");
    assert!(ended.denial().is_none(), "{ended}");
}
