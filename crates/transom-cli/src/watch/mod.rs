//! `transom watch`: running processes, as they change.

mod sampler;
mod state;
mod view;
mod web;

use std::io::IsTerminal;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::disable_raw_mode;
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::command::exit::{Exit, Failure, Outcome, system};
use crate::inspect::not_answered;
use sampler::Sampler;
use state::{Input, WatchState};

/// Signals that end this program.
const SIGNALS: [i32; 4] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT];
/// A key waits at most for so long, and a sample for its place on the screen.
const FRAME: Duration = Duration::from_millis(100);

/// The time of a process that is asked while others wait for their turn.
const TURN: Duration = Duration::from_secs(5);

/// Arguments of `watch`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The number of a process, to watch it alone: `transom ps` lists them
    pid: Option<u32>,
    /// Serve the memory map, a page for a browser, on a loopback address behind a random path
    #[arg(long)]
    web: bool,
    /// The port of that page, for a tunnel [default: any that is free]
    #[arg(long, requires = "web")]
    port: Option<u16>,
    /// Write the memory map into a new file, which opens without this program, and serve nothing
    #[arg(long, conflicts_with = "port", value_name = "FILE")]
    export: Option<PathBuf>,
    /// Watch for so long before the file is written [default: one look]
    #[arg(long, requires = "export")]
    seconds: Option<u64>,
}

/// `transom watch`.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(pid) = args.pid {
        transom_inspect::ask(pid).map_err(|error| not_answered(pid, &error))?;
    }
    match &args.export {
        Some(file) => {
            let watch = Duration::from_secs(args.seconds.unwrap_or_default());
            return web::export(args.pid, file, watch);
        }
        None if args.web => return web::serve(args.pid, args.port.unwrap_or_default()),
        None => {}
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let sentence = "watch fills a screen, and its input or its output is no terminal";
        return Err(Failure::new(Exit::Usage, sentence)
            .try_this("transom ps, transom show PID; both have --json"));
    }
    let failed = system("the terminal");
    // A signal that would end this program is kept until the terminal is as it was before.
    let ended = Arc::new(AtomicUsize::new(0));
    for signal in SIGNALS {
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, ended.clone(), number)
            .map_err(system("signals"))?;
    }
    guard(&ended).map_err(system("signals"))?;
    let sampler = Sampler::start(args.pid).map_err(system("a thread that asks processes"))?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let left = watch(&mut terminal, &sampler, args.pid, &ended);
    ratatui::restore();
    if let Ok(signal @ 1..) = i32::try_from(ended.load(Ordering::Relaxed)) {
        // The parent is to see what ended this program.
        signal_hook::low_level::emulate_default_handler(signal).map_err(system("signals"))?;
    }
    left.map_err(system("the terminal"))
}

/// A signal, or the end of the terminal, ends this program in order within so long.
const IN_ORDER: Duration = Duration::from_secs(3);

/// Ends this program where it cannot end in order: a terminal that has gone is at its end again and again,
/// and a read of keys comes back from it with none. The end of the terminal counts as its signal.
fn guard(ended: &Arc<AtomicUsize>) -> std::io::Result<()> {
    let (signalled, wakes) = UnixStream::pair()?;
    for signal in SIGNALS {
        signal_hook::low_level::pipe::register(signal, wakes.try_clone()?)?;
    }
    let ended = ended.clone();
    thread::Builder::new().name("guard".to_owned()).spawn(move || {
        let stdin = std::io::stdin();
        loop {
            // Asked for nothing, the terminal says when it hangs up.
            let mut watched =
                [PollFd::new(&signalled, PollFlags::IN), PollFd::new(&stdin, PollFlags::empty())];
            if !matches!(rustix::event::poll(&mut watched, None), Err(rustix::io::Errno::INTR)) {
                break;
            }
        }
        let hangs_up = usize::try_from(SIGHUP).unwrap_or_default();
        let _ = ended.compare_exchange(0, hangs_up, Ordering::Relaxed, Ordering::Relaxed);
        thread::sleep(IN_ORDER);
        let _ = disable_raw_mode();
        let signal = i32::try_from(ended.load(Ordering::Relaxed)).unwrap_or(SIGHUP);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    })?;
    Ok(())
}

/// Until the user leaves, or a signal has come.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    sampler: &Sampler,
    only: Option<u32>,
    ended: &AtomicUsize,
) -> std::io::Result<()> {
    // https://no-color.org: set, and not empty.
    let colour = transom_os::environment::variable("NO_COLOR").is_none();
    let mut state = WatchState::new(only, colour);
    while ended.load(Ordering::Relaxed) == 0 {
        sampler.samples().for_each(|sample| state.apply(sample));
        sampler.want(state.wanted());
        terminal.draw(|frame| view::draw(frame, &state))?;
        if event::poll(FRAME)?
            && let Event::Key(key) = event::read()?
            && let Some(input) = input(key)
            && !state.input(input)
        {
            break;
        }
    }
    Ok(())
}

/// The meaning of a key.
fn input(key: KeyEvent) -> Option<Input> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Input::Quit,
        _ if control => return None,
        KeyCode::Char('q') => Input::Quit,
        KeyCode::Esc => Input::Back,
        KeyCode::Enter => Input::Open,
        KeyCode::Char(' ' | 'p') => Input::Hold,
        KeyCode::Char('s') => Input::Sort,
        KeyCode::Char('r') => Input::Reverse,
        KeyCode::Tab => Input::NextPane,
        KeyCode::BackTab => Input::PreviousPane,
        KeyCode::Up | KeyCode::Char('k') => Input::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Input::Move(1),
        KeyCode::PageUp => Input::Move(-10),
        KeyCode::PageDown => Input::Move(10),
        KeyCode::Home | KeyCode::Char('g') => Input::First,
        KeyCode::End | KeyCode::Char('G') => Input::Last,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
