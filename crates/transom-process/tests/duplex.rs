//! Two channels over two rings in plain memory: what only the two together can get wrong.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "common/mod.rs"]
mod common;

use common::Plain;
use transom_process::record::{HEADER, LARGEST_TEXT};
use transom_process::ring::{DATA, Found, INLINE, SLOTS};
use transom_process::{Channel, Duplex};
use transom_wire::{
    Begin, Config, Event, Message, MessageId, Operation, ReadLimits, Receiving, Refusal,
    RefusalClass, Role, Sending, StartUp, Time, Waiting,
};

const NOW: Time = Time(1_000_000);

struct End {
    channel: Channel,
    duplex: Duplex<Plain>,
    out: Vec<u8>,
    written: usize,
}

impl End {
    /// Say everything there is room for, as a driver does it.
    fn send(&mut self) {
        if self.duplex.write(&mut self.out, &mut self.written) {
            while self.duplex.has_room(&self.out[self.written..]) {
                let Some(frame) = self.channel.next_frame(NOW) else { break };
                self.out.extend_from_slice(frame.header());
                self.out.resize(self.out.len() + frame.length as usize, 7);
            }
        }
        self.duplex.write(&mut self.out, &mut self.written);
        let _ = self.duplex.acknowledge(self.channel.acknowledgement(NOW));
    }

    /// Read what there is; what comes of it, in words.
    fn receive(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        let mut staging = [0; HEADER + LARGEST_TEXT];
        loop {
            let used = match self.duplex.read() {
                Some(record) => {
                    let record = record.unwrap();
                    self.duplex.copy(&record.header, record.body, &mut staging)
                }
                None => match self.duplex.news_beside().unwrap() {
                    Some(word) => {
                        self.duplex.copy(&word, Found::Inline([0; INLINE / 8]), &mut staging)
                    }
                    None => return told,
                },
            };
            let decoded = self.channel.decode(NOW, &staging[..used]).unwrap();
            assert_eq!(decoded.consumed, used);
            let last = matches!(decoded.event, Some(Event::Send { .. } | Event::Write { .. }));
            told.extend(decoded.event.map(|event| format!("{event:?}")));
            if last {
                self.channel.executed(NOW);
            }
            while let Some(event) = self.channel.poll_event() {
                told.push(format!("{event:?}"));
            }
        }
    }
}

/// Two that are connected, over rings of so many slots: the active one first.
fn connected(slots: usize) -> [End; 2] {
    let memory = Plain::new();
    let [mut active, mut passive] = [Role::Active, Role::Passive].map(|role| End {
        channel: Channel::new(Config::new(role), NOW),
        duplex: Duplex::sized(memory.clone(), usize::from(role == Role::Passive), slots, DATA),
        out: Vec::new(),
        written: 0,
    });
    let limits = ReadLimits { inbound: 1, outbound: 1 };
    active.channel.connect(NOW, limits, &[]).unwrap();
    active.send();
    passive.receive();
    passive.channel.accept(NOW, limits, &[]).unwrap();
    passive.send();
    active.receive();
    active.channel.confirm(NOW).unwrap();
    for _ in 0..2 {
        active.send();
        passive.receive();
        passive.send();
        active.receive();
    }
    [active, passive]
}

fn has(told: &[String], what: &str) -> bool {
    told.iter().any(|told| told.starts_with(what))
}

/// A shared queue gives its receives one at a time, when they are asked for: each wish is granted,
/// even if nothing else in its word is new (ND2 4.5, an empty shared queue).
#[test]
fn every_wish_for_a_receive_of_a_shared_queue_is_granted() {
    let [mut sender, mut receiver] = connected(SLOTS);
    receiver.channel.receives_posted(NOW, 0, true);
    let message = Message::Send { length: 0, solicited: false, invalidate: None, immediate: None };
    for number in 0..5 {
        let begin = sender.channel.begin(NOW, MessageId(number), &message);
        assert!(matches!(begin, Begin::Wait(Waiting::Receive { .. })), "{number}: {begin:?}");
        sender.send();
        assert!(has(&receiver.receive(), "CreditWanted"), "wish {number}");
        receiver.channel.receives_posted(NOW, number + 1, true);
        receiver.send();
        assert!(has(&sender.receive(), "Resume"), "receive {number}");
        assert_eq!(sender.channel.begin(NOW, MessageId(number), &message), Begin::Started);
        sender.send();
        assert!(has(&receiver.receive(), "Send"), "Send {number}");
    }
}

/// A record that is longer than a header has room for comes in pieces. It is finished once it has
/// begun, however few slots were free then, and leaves as soon as there is one (design rule 4: a
/// peer that is refused learns it).
#[test]
fn a_refusal_gets_through_a_ring_that_was_nearly_full() {
    let [mut active, mut passive] = connected(4);
    let write =
        |length| Message::Write { token: 1, address: 2, length, verdict: true, immediate: None };
    assert_eq!(active.channel.begin(NOW, MessageId(0), &write(9)), Begin::Started);
    active.send();
    passive.receive();
    for number in 0..2 {
        assert_eq!(passive.channel.begin(NOW, MessageId(number), &write(9)), Begin::Started);
        passive.send();
    }
    assert!(passive.duplex.has_room(&[]), "there is a slot left, and not one for each piece");
    let text = "why ".repeat(100);
    let (operation, class) = (Operation::Write, RefusalClass::Bounds);
    passive.channel.refuse(NOW, Some(&Refusal { operation, class, explanation: Some(&text) }));
    for _ in 0..3 {
        passive.send();
    }
    let told = active.receive();
    assert!(has(&told, "PeerFailed") && told.last().unwrap().contains(&text), "{told:?}");
}
