//! A peer that uses a token once more: after it was closed, after its memory was registered again,
//! over another connection, or to close a token of another connection.

use transom::Rule;

use super::forge::*;

/// The token works, so that what follows is not refused for another reason.
fn works(forged: &mut Forged, (token, address): (u32, u64)) {
    forged.read(token, address, 8);
    assert_eq!(forged.answer(), [7; 8]);
}

/// A write and a read with it are refused, each at the cost of a connection of its own.
fn refused(owner: &mut Owner, token: u32, address: u64, rule: Rule) {
    for write in [true, false] {
        let (ours, mut forged) = owner.admit();
        if write {
            forged.write(token, address, &[1; 8]);
        } else {
            forged.read(token, address, 8);
        }
        forged.is_thrown_out();
        assert_eq!(ours.recv().wait().unwrap_err().denial().unwrap().rule, rule);
    }
}

/// Design rule 5: on the very connection it was for, from the moment at which the close returned.
#[test]
fn a_token_is_dead_once_it_is_closed() {
    let mut owner = Owner::new();
    for write in [true, false] {
        let (ours, mut forged) = owner.admit();
        let (memory, window) = owner.lend(&ours);
        let (token, address) = parts(window.grant());
        works(&mut forged, (token, address));
        window.revoke().wait().unwrap();
        if write {
            forged.write(token, address, &[1; 8]);
        } else {
            forged.read(token, address, 8);
        }
        forged.is_thrown_out();
        assert_eq!(ours.recv().wait().unwrap_err().denial().unwrap().rule, Rule::LiveToken);
        untouched(&memory);
    }
}

/// Memory registered and lent again at its address has another token.
#[test]
fn a_token_stays_dead_when_its_memory_is_registered_again() {
    let mut owner = Owner::new();
    let (ours, mut forged) = owner.admit();
    let (memory, window) = owner.lend(&ours);
    let (old, address) = parts(window.grant());
    works(&mut forged, (old, address));
    window.revoke().wait().unwrap();
    let memory = memory.deregister().wait().unwrap();
    let memory = owner.adapter.register(memory).unwrap();
    let window = ours.bind(&memory, 64..4032, transom::Rights::READ).unwrap();
    ours.send(b"bound").unwrap().wait().unwrap();
    let (new, same) = parts(window.grant());
    assert_eq!(address, same);
    works(&mut forged, (new, same));
    forged.write(old, address, &[1; 8]);
    forged.is_thrown_out();
    assert_eq!(ours.recv().wait().unwrap_err().denial().unwrap().rule, Rule::LiveToken);
    untouched(&memory);
}

/// Windows end with their connection: a peer that comes back has nothing.
#[test]
fn a_token_does_not_survive_its_connection() {
    let mut owner = Owner::new();
    let (ours, mut forged) = owner.admit();
    let (memory, window) = owner.lend(&ours);
    let (token, address) = parts(window.grant());
    works(&mut forged, (token, address));
    drop(forged);
    assert!(ours.recv().wait().is_err());
    // While the owner still has all handles, and when they are gone.
    refused(&mut owner, token, address, Rule::LiveToken);
    drop(ours);
    refused(&mut owner, token, address, Rule::LiveToken);
    untouched(&memory);
    drop(window);
}

/// ND2 W3, W18: a window is for one queue pair; its token is of no use to another queue pair's
/// peer, which may have read it on the wire.
#[test]
fn a_token_is_of_no_use_over_another_connection() {
    let mut owner = Owner::new();
    let (ours, mut forged) = owner.admit();
    let (memory, window) = owner.lend(&ours);
    let (token, address) = parts(window.grant());
    works(&mut forged, (token, address));
    refused(&mut owner, token, address, Rule::Scope);
    untouched(&memory);
    works(&mut forged, (token, address));
}

/// RFC 5040 5.3, ND2 W18: a Send with Invalidate closes tokens of its own connection only.
#[test]
fn a_foreign_token_cannot_be_invalidated() {
    let mut owner = Owner::new();
    let (ours, mut honest) = owner.admit();
    let (_memory, window) = owner.lend(&ours);
    let (token, address) = parts(window.grant());
    let (theirs, mut forged) = owner.admit();
    forged.send_invalidate(token);
    forged.is_thrown_out();
    assert!(theirs.recv().wait().is_err());
    works(&mut honest, (token, address));
}
