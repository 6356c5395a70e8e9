//! The Winsock catalogue of 64-bit programs.

use std::os::windows::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

use windows_sys::Win32::Foundation::{CloseHandle, FreeLibrary};
use windows_sys::Win32::Networking::WinSock::{
    SOCKET_ERROR, WSADATA, WSAENOBUFS, WSAPROTOCOL_INFOW, WSAStartup, WSCDeinstallProvider,
    WSCEnumProtocols, WSCGetProviderPath, WSCInstallProvider,
};
use windows_sys::Win32::Security::{
    GetTokenInformation, TOKEN_ELEVATION, TOKEN_QUERY, TokenElevation,
};
use windows_sys::Win32::System::LibraryLoader::{GetProcAddress, LoadLibraryExW};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};
use windows_sys::core::GUID;

use crate::command::exit::{Exit, Failure, Outcome};

use super::catalogue::{Catalogue, Entry, Id, Refused, Version};

// Pointers to the one are passed as pointers to the other.
const _: () = assert!(size_of::<Entry>() == size_of::<WSAPROTOCOL_INFOW>());
const _: () = assert!(align_of::<Entry>() == align_of::<WSAPROTOCOL_INFOW>());
const _: () = assert!(std::mem::offset_of!(Entry, name) == 116);
const _: () = assert!(std::mem::offset_of!(WSAPROTOCOL_INFOW, szProtocol) == 116);
const _: () = assert!(size_of::<Id>() == size_of::<GUID>());

/// Winsock, started.
pub(super) struct System(());

pub(super) fn open() -> Outcome<System> {
    let mut data = WSADATA::default();
    // SAFETY: writes to `data`. The process ends with the command, and Winsock with it.
    match unsafe { WSAStartup(0x0202, &raw mut data) } {
        0 => Ok(System(())),
        code => Err(Failure::new(Exit::System, format!("Winsock does not start: error {code}"))),
    }
}

/// Whether programs can load this file as a provider.
pub(super) fn check_library(file: &Path) -> Result<(), String> {
    let name: Vec<u16> = file.as_os_str().encode_wide().chain([0]).collect();
    // SAFETY: a name that ends with a zero.
    let library = unsafe { LoadLibraryExW(name.as_ptr(), null_mut(), 0) };
    if library.is_null() {
        return Err(std::io::Error::last_os_error().to_string());
    }
    let missing = [c"DllGetClassObject", c"DllCanUnloadNow"].into_iter().find(|name| {
        // SAFETY: a loaded library, and a name that ends with a zero.
        unsafe { GetProcAddress(library, name.as_ptr().cast()) }.is_none()
    });
    // SAFETY: loaded above; nothing of it has been called.
    unsafe { FreeLibrary(library) };
    match missing {
        Some(name) => Err(format!("{} is not exported", name.to_string_lossy())),
        None => Ok(()),
    }
}

fn guid(id: &Id) -> *const GUID {
    std::ptr::from_ref(id).cast()
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

fn answered(call: &'static str, result: i32, code: i32) -> Result<(), Refused> {
    if result == SOCKET_ERROR { Err(Refused { call, code }) } else { Ok(()) }
}

impl Catalogue for System {
    fn is_administrator(&self) -> bool {
        let mut token = null_mut();
        // SAFETY: the handle of this process needs no closing; the token's is closed below.
        if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
            return false;
        }
        let mut elevation = TOKEN_ELEVATION { TokenIsElevated: 0 };
        let (room, mut used) = ((&raw mut elevation).cast(), 0);
        let size = size_of::<TOKEN_ELEVATION>() as u32;
        // SAFETY: writes at most `size` bytes to `elevation`.
        let known =
            unsafe { GetTokenInformation(token, TokenElevation, room, size, &raw mut used) };
        // SAFETY: opened above, and not used afterwards.
        unsafe { CloseHandle(token) };
        known != 0 && elevation.TokenIsElevated != 0
    }

    fn entries(&self) -> Result<Vec<Entry>, Refused> {
        let call = "WSCEnumProtocols";
        let blank = Version::Two.entries().remove(0);
        let (mut size, mut code) = (0_u32, 0);
        // The catalogue may grow between two calls.
        for _ in 0..8 {
            let mut all = vec![blank.clone(); (size as usize).div_ceil(size_of::<Entry>())];
            let room = all.as_mut_ptr().cast();
            // SAFETY: writes at most `size` bytes, which `all` has, as entries of that layout.
            let count = unsafe { WSCEnumProtocols(null(), room, &raw mut size, &raw mut code) };
            if let Ok(count) = usize::try_from(count) {
                all.truncate(count);
                return Ok(all);
            }
            if code != WSAENOBUFS {
                break;
            }
        }
        Err(Refused { call, code })
    }

    fn library(&self, provider: Id) -> Result<String, Refused> {
        let mut path = [0_u16; 1024];
        let (mut length, mut code) = (path.len() as i32, 0);
        let room = path.as_mut_ptr();
        // SAFETY: writes at most `length` units, which `path` has.
        let result =
            unsafe { WSCGetProviderPath(guid(&provider), room, &raw mut length, &raw mut code) };
        answered("WSCGetProviderPath", result, code)?;
        let end = path.iter().position(|unit| *unit == 0).unwrap_or(path.len());
        Ok(String::from_utf16_lossy(&path[..end]))
    }

    fn install(&mut self, provider: Id, library: &str, entries: &[Entry]) -> Result<(), Refused> {
        let (path, mut code) = (wide(library), 0);
        let (list, count) = (entries.as_ptr().cast(), entries.len() as u32);
        // SAFETY: a path that ends with a zero, and so many entries of that layout.
        let result = unsafe {
            WSCInstallProvider(guid(&provider), path.as_ptr(), list, count, &raw mut code)
        };
        answered("WSCInstallProvider", result, code)
    }

    fn remove(&mut self, provider: Id) -> Result<(), Refused> {
        let mut code = 0;
        // SAFETY: reads the id, and writes the code.
        let result = unsafe { WSCDeinstallProvider(guid(&provider), &raw mut code) };
        answered("WSCDeinstallProvider", result, code)
    }
}
