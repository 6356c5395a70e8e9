//! Runs a program one instruction at a time between its marks, by ptrace.
//!
//! During a stretch the program's other threads stand still and the time-stamp counter is frozen, so
//! that neither the slowness of single steps nor another thread changes the path taken. A stretch has
//! two halves of the same work, of which the second one counts: the first one takes up what the pause
//! before it has left, such as leases that have lapsed, which depends on the load of the machine.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::decode::{Kind, LONGEST, kind};

/// Instructions of one stretch, after which it is given up: it waits for a thread that was stopped
/// while it held a lock.
const MOST: u64 = 1_000_000;

/// How long a system call may take before it is taken to wait for a thread that was stopped.
const BLOCKED: Duration = Duration::from_millis(500);
/// How long a subject may run from one mark to the next.
const PATIENCE: Duration = Duration::from_secs(60);

/// The instructions of the second half of a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// All instructions; a system call is one.
    pub(crate) instructions: u64,
    /// Instructions that lock a cache line, and full fences.
    pub(crate) locked: u64,
    /// System calls.
    pub(crate) calls: u64,
}

/// Called by the subject at the beginning, in the middle and at the end of each stretch. Without a
/// stepper the process ends with a trap.
#[inline(always)]
pub(crate) fn mark() {
    // SAFETY: a breakpoint touches neither registers nor memory; the stepper continues behind it.
    unsafe { std::arch::asm!("int3", options(nomem, nostack, preserves_flags)) };
}

/// Starts `command` and counts each stretch until the program ends. A stretch that had to wait for
/// another thread is left out.
///
/// # Errors
/// The system does not allow ptrace, or the subject ended in another way than by success.
pub(crate) fn run(command: &mut Command) -> io::Result<Vec<Count>> {
    // SAFETY: `trace_me` makes one system call and allocates nothing, as a child of a process with
    // threads may between fork and exec.
    unsafe { command.pre_exec(trace_me) };
    let child = command.spawn()?;
    let mut stepper = Stepper::new(&child)?;
    let mut counts = Vec::new();
    stepper.wait()?;
    stepper.end_with_us()?;
    while stepper.resume()? {
        counts.extend(stepper.stretch()?);
    }
    Ok(counts)
}

fn trace_me() -> io::Result<()> {
    // SAFETY: asks for this process to be traced by its parent; no pointer is passed.
    check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) }).map(drop)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The signal that a wait status tells of; `None` if the subject has ended well.
fn stopped_by(status: libc::c_int) -> io::Result<Option<i32>> {
    if libc::WIFSTOPPED(status) {
        return Ok(Some(libc::WSTOPSIG(status)));
    }
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(None);
    }
    Err(fault(format!("the subject failed (wait status {status:#x})")))
}

fn fault(what: String) -> io::Error {
    io::Error::other(what)
}

/// The traced main thread of a subject.
struct Stepper {
    pid: libc::pid_t,
    /// The kind of instruction at each address that was executed: code does not change.
    kinds: HashMap<u64, Kind>,
    /// Other threads that stand still while a stretch is counted.
    stopped: Vec<libc::pid_t>,
    /// The frozen time-stamp counter.
    clock: Option<u64>,
}

impl Stepper {
    fn new(child: &Child) -> io::Result<Stepper> {
        let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
        Ok(Stepper { pid, kinds: HashMap::new(), stopped: Vec::new(), clock: None })
    }

    fn ptrace(&self, request: libc::c_uint, address: u64, data: u64) -> io::Result<libc::c_long> {
        // SAFETY: only requests are passed that take plain numbers.
        check(unsafe { libc::ptrace(request, self.pid, address, data) })
    }

    /// A subject must not outlive its stepper.
    fn end_with_us(&self) -> io::Result<()> {
        let options = u64::from(libc::PTRACE_O_EXITKILL.unsigned_abs());
        self.ptrace(libc::PTRACE_SETOPTIONS, 0, options).map(drop)
    }

    /// The signal that stopped the subject; `None` if it has ended well.
    fn wait(&self) -> io::Result<Option<i32>> {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        check(unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) }.into())?;
        stopped_by(status)
    }

    /// As [`wait`](Stepper::wait), but `None` if nothing has happened within `limit`.
    fn wait_within(&self, limit: Duration) -> io::Result<Option<Option<i32>>> {
        let begin = Instant::now();
        loop {
            let (mut status, options) = (0, libc::__WALL | libc::WNOHANG);
            // SAFETY: `status` outlives the call.
            let changed = unsafe { libc::waitpid(self.pid, &raw mut status, options) };
            if check(changed.into())? != 0 {
                return stopped_by(status).map(Some);
            }
            if begin.elapsed() >= limit {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// A subject that does not get on is ended.
    fn give_up(&self) -> io::Error {
        // SAFETY: takes no pointers. The subject is a child that has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        fault(format!("the subject made no mark within {} s", PATIENCE.as_secs()))
    }

    /// Lets the subject run to its next mark, and passes its signals on. False if it has ended.
    fn resume(&mut self) -> io::Result<bool> {
        let mut signal = 0;
        loop {
            self.ptrace(libc::PTRACE_CONT, 0, signal)?;
            match self.wait_within(PATIENCE)? {
                None => return Err(self.give_up()),
                Some(None) => return Ok(false),
                Some(Some(libc::SIGTRAP)) => return Ok(true),
                Some(Some(other)) => signal = u64::from(other.unsigned_abs()),
            }
        }
    }

    /// Counts from the next mark to the one behind it, and leaves the subject behind that mark. `None` if
    /// the stretch is given up ([`MOST`]).
    fn stretch(&mut self) -> io::Result<Option<Count>> {
        self.stop_others()?;
        self.clock = None;
        let (mut count, mut halves) = (Count::default(), 0);
        loop {
            let mut registers = self.registers()?;
            let kind = self.kind_at(registers.rip)?;
            match kind {
                Kind::Mark if halves == 1 => break,
                Kind::Mark => {
                    self.step()?;
                    (count, halves) = (Count::default(), 1);
                    continue;
                }
                Kind::Clock(length) => self.read_clock(&mut registers, length)?,
                Kind::Call if !self.step_call()? => return self.leave_out(2 - halves),
                _ => self.step()?,
            }
            count.instructions += 1;
            count.locked += u64::from(kind == Kind::Locked);
            count.calls += u64::from(kind == Kind::Call);
            if count.instructions > MOST {
                return self.leave_out(2 - halves);
            }
        }
        self.let_others_run();
        self.step()?;
        Ok(Some(count))
    }

    /// Gives a stretch up and leaves the subject behind its last mark; `left`: marks to come.
    fn leave_out(&mut self, left: usize) -> io::Result<Option<Count>> {
        self.let_others_run();
        for _ in 0..left {
            if !self.resume()? {
                return Err(fault("the subject ended between two marks".into()));
            }
        }
        Ok(None)
    }

    /// A system call. False if it waited for another thread, which runs again.
    fn step_call(&mut self) -> io::Result<bool> {
        self.ptrace(libc::PTRACE_SINGLESTEP, 0, 0)?;
        let in_time = self.wait_within(BLOCKED)?;
        if in_time.is_none() {
            self.let_others_run();
        }
        let stopped = match in_time {
            None => self.wait_within(PATIENCE)?,
            stopped => stopped,
        };
        match stopped {
            None => Err(self.give_up()),
            Some(Some(libc::SIGTRAP)) => Ok(in_time.is_some()),
            Some(other) => Err(fault(format!("{other:?} instead of a system call's end"))),
        }
    }

    /// Execute one instruction. A signal that arrives meanwhile belongs to what is not counted: the
    /// subject handles none.
    fn step(&self) -> io::Result<()> {
        self.ptrace(libc::PTRACE_SINGLESTEP, 0, 0)?;
        match self.wait()? {
            Some(libc::SIGTRAP) => Ok(()),
            Some(other) => Err(fault(format!("signal {other} while counting"))),
            None => Err(fault("the subject ended between two marks".into())),
        }
    }

    /// Answers a reading of the time-stamp counter. The first one of a stretch is executed and kept,
    /// the others get its value.
    fn read_clock(
        &mut self,
        registers: &mut libc::user_regs_struct,
        length: u64,
    ) -> io::Result<()> {
        let Some(clock) = self.clock else {
            self.step()?;
            let after = self.registers()?;
            self.clock = Some((after.rax & 0xffff_ffff) | after.rdx << 32);
            return Ok(());
        };
        registers.rax = clock & 0xffff_ffff;
        registers.rdx = clock >> 32;
        registers.rip += length;
        self.set_registers(registers)
    }

    fn kind_at(&mut self, address: u64) -> io::Result<Kind> {
        if let Some(known) = self.kinds.get(&address) {
            return Ok(*known);
        }
        let mut code = [0; LONGEST];
        for (index, part) in code.chunks_exact_mut(8).enumerate() {
            // The last instruction of a mapping may end before the second word does.
            let word = match self.word(address + 8 * index as u64) {
                Err(_) if index > 0 => 0,
                other => other?,
            };
            part.copy_from_slice(&word.to_le_bytes());
        }
        let kind = kind(code);
        self.kinds.insert(address, kind);
        Ok(kind)
    }

    fn word(&self, address: u64) -> io::Result<u64> {
        // SAFETY: `errno` belongs to this thread.
        let errno = unsafe { &mut *libc::__errno_location() };
        *errno = 0;
        // SAFETY: reads the subject's memory, not ours; the result is the word.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, self.pid, address, 0) };
        if *errno != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(word.cast_unsigned())
    }

    fn registers(&self) -> io::Result<libc::user_regs_struct> {
        let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        // SAFETY: the kernel fills all of the structure that `registers` has room for.
        check(unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, registers.as_mut_ptr()) })?;
        // SAFETY: the call succeeded, so the structure is filled.
        Ok(unsafe { registers.assume_init() })
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) -> io::Result<()> {
        // SAFETY: the kernel reads the structure during the call only.
        check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, registers) }).map(drop)
    }

    /// Every other thread of the subject stands still.
    fn stop_others(&mut self) -> io::Result<()> {
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let name = task?.file_name();
            let Some(thread) = name.to_str().and_then(|name| name.parse::<libc::pid_t>().ok())
            else {
                continue;
            };
            if thread == self.pid {
                continue;
            }
            // SAFETY: these requests take no pointers. A thread that has ended meanwhile fails them.
            let seized = unsafe {
                libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) == 0
                    && libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) == 0
            };
            if seized {
                let mut status = 0;
                // SAFETY: `status` outlives the call.
                check(unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) }.into())?;
                self.stopped.push(thread);
            }
        }
        Ok(())
    }

    fn let_others_run(&mut self) {
        for thread in self.stopped.drain(..) {
            // SAFETY: takes no pointers. A thread that has ended needs no detaching.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, 0, 0) };
        }
    }
}
