//! Completion queues and completion channels.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use transom_engine::raw::Time;
use transom_engine::{Completion, Moderation, NotifyKind, Status, raw};

use crate::abi::{event, ibv_wc, status};
use crate::channel::{Acknowledged, Channel};
use crate::context::{AsyncEvent, Context};
use crate::errno::{Errno, Result};
use crate::memory::{Domain, Users};
use crate::{explain, limits, usage};

/// A completion channel: its events name the queues that have news.
#[derive(Debug)]
pub(crate) struct CompletionChannel {
    pub(crate) context: Arc<Context>,
    pub(crate) events: Channel<Arc<Queue>>,
    pub(crate) users: Users,
}

impl CompletionChannel {
    pub(crate) fn new(context: &Arc<Context>) -> Result<CompletionChannel> {
        let (events, users) = (Channel::new()?, Users::default());
        Ok(CompletionChannel { context: context.clone(), events, users })
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) context: Arc<Context>,
    pub(crate) engine: raw::CompletionQueue,
    pub(crate) channel: Option<Arc<CompletionChannel>>,
    /// The parent domain that it was made in.
    parent: Option<Arc<Domain>>,
    /// See [`Queue::ignore_overruns`].
    ignores_overruns: bool,
    pub(crate) handle: u32,
    /// Where the program's structure is.
    pub(crate) address: AtomicUsize,
    /// Queue pairs that complete here.
    pub(crate) users: Users,
    pub(crate) completion_events: Acknowledged,
    pub(crate) async_events: Acknowledged,
    /// The notification that the program has asked for and not got yet.
    armed: Mutex<Option<NotifyKind>>,
    /// Ports at which datagrams for its queue pairs arrive, each with the number of those.
    datagrams: Mutex<Vec<(Arc<raw::DatagramPort>, usize)>>,
    has_datagrams: AtomicBool,
    /// The entry that `ibv_start_poll` and `ibv_next_poll` have reached, and when it came.
    pub(crate) current: Mutex<(ibv_wc, Time)>,
}

/// How many entries a poll for several takes at a time. A poll for one clears no room for more.
const BATCH: usize = 16;

impl Queue {
    /// A queue for `depth` completions or a few more, and how many.
    pub(crate) fn new(
        context: &Arc<Context>,
        depth: u32,
        channel: Option<Arc<CompletionChannel>>,
        parent: Option<Arc<Domain>>,
    ) -> Result<(Queue, u32)> {
        if depth == 0 || depth > limits::COMPLETIONS {
            return Err(Errno::EINVAL);
        }
        if channel.as_ref().is_some_and(|channel| !Arc::ptr_eq(&channel.context, context)) {
            return Err(Errno::EINVAL);
        }
        let foreign = |domain: &Arc<Domain>| !Arc::ptr_eq(&domain.context, context);
        if parent.as_ref().is_some_and(|domain| !domain.is_parent() || foreign(domain)) {
            return Err(Errno::EINVAL);
        }
        context.counters.queues.take()?;
        let granted = granted(depth);
        let engine = context.adapter.completion_queue(granted as usize).inspect_err(|_| {
            context.counters.queues.give_back();
        })?;
        if let Some(channel) = &channel {
            channel.users.join();
        }
        if let Some(parent) = &parent {
            parent.join();
        }
        let queue = Queue {
            handle: context.handle(),
            context: context.clone(),
            engine,
            channel,
            parent,
            ignores_overruns: false,
            address: AtomicUsize::new(0),
            users: Users::default(),
            completion_events: Acknowledged::default(),
            async_events: Acknowledged::default(),
            armed: Mutex::new(None),
            datagrams: Mutex::default(),
            has_datagrams: AtomicBool::new(false),
            current: Mutex::new((ibv_wc::default(), Time(0))),
        };
        Ok((queue, granted))
    }

    /// No overrun takes it down: it has room for whatever its queues complete (Verbs V54).
    pub(crate) fn ignore_overruns(&mut self) -> Result {
        self.ignores_overruns = true;
        Ok(self.engine.resize(limits::COMPLETIONS as usize)?)
    }

    /// Hold events back until `count` completions have come, for at most `period` microseconds (Verbs V176). `EINVAL`
    /// for a period beyond the limit.
    pub(crate) fn moderate(&self, count: u16, period: u16) -> Result {
        if period > limits::MODERATION_PERIOD {
            return Err(Errno::EINVAL);
        }
        let moderation = (count > 1 && period > 0).then(|| Moderation {
            count: count.into(),
            interval: Some(Duration::from_micros(period.into())),
        });
        Ok(self.engine.moderate(moderation)?)
    }

    /// Raise CQ_ERR when the queue runs over: once, because nothing is added to it afterwards.
    pub(crate) fn watch(self: &Arc<Queue>) -> Result {
        let later = Arc::downgrade(self);
        let sink = raw::Sink::call(move |status| {
            let Some(queue) = later.upgrade().filter(|_| status == Status::QueueOverrun) else {
                return;
            };
            transom_os::say!(
                "transom: a completion queue for {} completions ran over; its {} queue pairs end. Their \
                 queues have {} places, those of shared receive queues apart: make it as deep as that \
                 together, or poll it in time (`transom explain completion_room`)",
                queue.engine.capacity(),
                queue.users.count(),
                queue.engine.bound(),
            );
            let event = AsyncEvent::Completions(queue.clone(), event::CQ_ERR);
            queue.context.events.push_of(&queue.async_events, event);
        });
        Ok(self.engine.notify(NotifyKind::Errors, sink)?)
    }

    /// Retrieve completions; how many. `EIO` in a forked child, which would wait for ever.
    #[inline]
    pub(crate) fn poll(
        &self,
        store: impl FnMut(usize, ibv_wc, Time),
        most: usize,
    ) -> Result<usize> {
        let found = match most {
            1 => self.poll_in_batches::<1>(store, most),
            _ => self.poll_in_batches::<BATCH>(store, most),
        };
        // The engine finds nothing in a forked child.
        if found == 0 && self.context.adapter.is_forked() { Err(Errno::EIO) } else { Ok(found) }
    }

    fn poll_in_batches<const N: usize>(
        &self,
        mut store: impl FnMut(usize, ibv_wc, Time),
        most: usize,
    ) -> usize {
        let mut batch = [Completion::BLANK; N];
        let mut done = 0;
        while done < most {
            let room = (most - done).min(N);
            let Some(room) = batch.get_mut(..room) else { break };
            let mut found = self.engine.poll(room);
            if found == 0 && done == 0 && self.has_datagrams.load(Ordering::Relaxed) {
                self.take_datagrams();
                found = self.engine.poll(room);
            }
            for completion in room.iter().take(found) {
                store(done, self.entry(completion), completion.at);
                done += 1;
            }
            if found < room.len() {
                break;
            }
        }
        done
    }

    fn ports(&self) -> MutexGuard<'_, Vec<(Arc<raw::DatagramPort>, usize)>> {
        self.datagrams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take the datagrams that have come. The list is not locked meanwhile, because a queue pair that
    /// ends leaves it.
    fn take_datagrams(&self) {
        for at in 0.. {
            let Some(port) = self.ports().get(at).map(|(port, _)| port.clone()) else { return };
            port.progress();
        }
    }

    /// Datagrams that arrive at `port` complete here: who polls the queue takes them.
    pub(crate) fn add_datagrams(&self, port: &Arc<raw::DatagramPort>) {
        let mut ports = self.ports();
        match ports.iter_mut().find(|(known, _)| Arc::ptr_eq(known, port)) {
            Some((_, count)) => *count += 1,
            None => ports.push((port.clone(), 1)),
        }
        self.has_datagrams.store(true, Ordering::Relaxed);
    }

    /// A queue pair fewer takes datagrams from `port`.
    pub(crate) fn remove_datagrams(&self, port: &Arc<raw::DatagramPort>) {
        let mut ports = self.ports();
        if let Some(at) = ports.iter().position(|(known, _)| Arc::ptr_eq(known, port)) {
            let left = ports.get_mut(at).map_or(0, |(_, count)| {
                *count -= 1;
                *count
            });
            if left == 0 {
                ports.swap_remove(at);
            }
        }
        self.has_datagrams.store(!ports.is_empty(), Ordering::Relaxed);
    }

    #[inline]
    fn entry(&self, completion: &Completion) -> ibv_wc {
        let entry = crate::status::entry(completion);
        if entry.status != status::SUCCESS {
            self.failed(completion, entry.status);
        }
        entry
    }

    #[cold]
    fn failed(&self, completion: &Completion, status: u32) {
        usage::failed(status);
        self.context.port.failed(completion, status);
        explain::completion(&self.context, completion);
    }

    fn armed(&self) -> MutexGuard<'_, Option<NotifyKind>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for an event at the next completion (Verbs V100). Arming for any overrides solicited.
    pub(crate) fn request_notification(self: &Arc<Queue>, solicited: bool) -> Result {
        if self.channel.is_none() {
            return Err(Errno::EINVAL);
        }
        let kind = if solicited { NotifyKind::Solicited } else { NotifyKind::Any };
        {
            let mut armed = self.armed();
            match *armed {
                Some(NotifyKind::Any) => return Ok(()),
                Some(_) if solicited => return Ok(()),
                // A notification that was asked for before comes with this one.
                Some(_) => {
                    *armed = Some(kind);
                    drop(armed);
                    return Ok(self.engine.notify(kind, raw::Sink::call(|_| {}))?);
                }
                None => *armed = Some(kind),
            }
        }
        let queue = Arc::downgrade(self);
        let sink = raw::Sink::call(move |status| {
            if let Some(queue) = queue.upgrade() {
                *queue.armed() = None;
                if status != Status::Canceled {
                    queue.raise_event();
                }
            }
        });
        self.engine.notify(kind, sink).inspect_err(|_| *self.armed() = None)?;
        Ok(())
    }

    fn raise_event(self: &Arc<Queue>) {
        if let Some(channel) = &self.channel {
            channel.events.push_of(&self.completion_events, self.clone());
        }
    }

    /// A depth that holds what is there; what was granted.
    pub(crate) fn resize(&self, depth: u32) -> Result<u32> {
        if depth == 0 || depth > limits::COMPLETIONS {
            return Err(Errno::EINVAL);
        }
        let granted = granted(depth);
        let room = if self.ignores_overruns { limits::COMPLETIONS } else { granted };
        self.engine.resize(room as usize).map_err(|_| Errno::EINVAL)?;
        Ok(granted)
    }

    /// The program destroys it: no further event, and those that were handed out are acknowledged.
    pub(crate) fn destroy(&self) -> Result {
        self.users.none()?;
        self.engine.cancel();
        // A notification may have begun, and raise its event later.
        self.completion_events.end();
        self.async_events.end();
        if let Some(channel) = &self.channel {
            channel.events.take_back(|queue| std::ptr::eq(&raw const **queue, self));
            channel.users.leave();
        }
        if let Some(parent) = &self.parent {
            parent.leave();
        }
        self.context.take_back_events(std::ptr::from_ref(self).cast());
        self.completion_events.wait();
        self.async_events.wait();
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.context.counters.queues.give_back();
    }
}

/// 2^k - 1: programs that count badly survive on adapters that round up, too (Verbs V52).
fn granted(depth: u32) -> u32 {
    (depth + 1).next_power_of_two() - 1
}

#[cfg(test)]
mod tests {
    #[test]
    fn v52_depths_are_rounded_up() {
        assert_eq!([1, 2, 3, 4, 501, 4_194_303].map(super::granted), [1, 3, 3, 7, 511, 4_194_303]);
    }
}
