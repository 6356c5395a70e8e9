//! Time, randomness, threads.

use std::sync::OnceLock;
use std::time::Duration;

use transom_wire::Time;
use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::Security::Cryptography::{
    BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom,
};
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::Threading::{GetCurrentThread, GetThreadTimes};

/// Monotonic time.
#[must_use]
pub fn now() -> Time {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    let frequency = *FREQUENCY.get_or_init(|| {
        let mut frequency = 0;
        // SAFETY: writes one number. Never fails on the systems that this runs on.
        unsafe { QueryPerformanceFrequency(&raw mut frequency) };
        u64::try_from(frequency).unwrap_or(0).max(1)
    });
    let mut ticks = 0;
    // SAFETY: writes one number.
    unsafe { QueryPerformanceCounter(&raw mut ticks) };
    let ticks = u64::try_from(ticks).unwrap_or(0);
    let (seconds, rest) = (ticks / frequency, ticks % frequency);
    Time(seconds.saturating_mul(1_000_000_000) + rest.saturating_mul(1_000_000_000) / frequency)
}

/// CPU time that this thread has used.
pub fn thread_time() -> Duration {
    let mut times = [FILETIME::default(); 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: the handle stands for this thread; each place is for one number.
    unsafe { GetThreadTimes(GetCurrentThread(), created, ended, kernel, user) };
    length(times[2]) + length(times[3])
}

fn length(time: FILETIME) -> Duration {
    let hundreds = u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Duration::from_nanos(hundreds.saturating_mul(100))
}

/// How many descriptors this process may have: not limited.
#[must_use]
pub fn descriptor_limit() -> Option<usize> {
    None
}

/// How many descriptors this process has, if the kernel says so.
#[must_use]
pub(crate) fn descriptors_in_use() -> Option<usize> {
    None
}

/// How many bytes of address space this process may have, if that is limited.
#[must_use]
pub(crate) fn address_space_limit() -> Option<usize> {
    None
}

/// Unpredictable bytes. `Err` if the system has none, which no supported system says.
///
/// # Errors
/// The error of the system.
pub fn random_seed() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    // SAFETY: fills as many bytes as are there; without an algorithm's handle it takes the system's.
    let status = unsafe {
        BCryptGenRandom(
            std::ptr::null_mut(),
            seed.as_mut_ptr(),
            seed.len() as u32,
            BCRYPT_USE_SYSTEM_PREFERRED_RNG,
        )
    };
    if status == 0 { Ok(seed) } else { Err(std::io::Error::from_raw_os_error(status)) }
}

/// How many forks lie between this process and the one that asked first: none.
#[must_use]
#[inline]
pub fn fork_generation() -> u64 {
    0
}

/// Start a thread. This system interrupts no thread with signals.
///
/// # Errors
/// The error of the system, which has no thread.
pub fn spawn_quiet<F: FnOnce() + Send + 'static>(
    name: &str,
    work: F,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    transom_os::threads::builder().name(name.to_owned()).spawn(work)
}

/// Let others run for a while. No lock may be held.
pub fn pause(length: std::time::Duration) {
    std::thread::sleep(length);
}

/// The name of the file that this process runs.
pub(crate) fn program() -> String {
    let file = std::env::current_exe().ok();
    let name = file.as_ref().and_then(|file| file.file_name());
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The machine's name: not asked for, because it stands in captures alone, which are refused here.
pub(crate) fn host_name() -> String {
    String::new()
}
