//! Calls through tables, driven to their end.

use super::*;

/// Something to wait for, with a limit so that a lost callback fails a test instead of hanging it.
pub struct Cell<T>(Mutex<Option<T>>, Condvar);

impl<T> Default for Cell<T> {
    fn default() -> Cell<T> {
        Cell(Mutex::new(None), Condvar::new())
    }
}

impl<T> Cell<T> {
    pub fn set(&self, value: T) {
        assert!(self.0.lock().unwrap().replace(value).is_none(), "called back twice");
        self.1.notify_all();
    }
    pub fn get(&self) -> T {
        let guard = self.0.lock().unwrap();
        let (mut guard, timeout) =
            self.1.wait_timeout_while(guard, Duration::from_secs(60), |v| v.is_none()).unwrap();
        assert!(!timeout.timed_out(), "nobody called back");
        guard.take().unwrap()
    }
    pub fn peek(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

/// Leaves the processor to others for a while, so that what must not happen has the time to happen.
/// Bounded: beside busy loops a single turn of the scheduler may take a tenth of a second.
pub fn let_others_run() {
    let begin = std::time::Instant::now();
    for _ in 0..1000 {
        std::thread::yield_now();
        if begin.elapsed() > Duration::from_millis(500) {
            return;
        }
    }
}

pub struct Shared<T>(pub T);
unsafe impl<T> Send for Shared<T> {}
unsafe impl<T> Sync for Shared<T> {}

pub unsafe extern "C" fn request_done(context: *mut c_void, status: i32) {
    let cell = unsafe { Arc::from_raw(context.cast::<Cell<i32>>()) };
    assert_ne!(status, PENDING, "NDK 0.5: never called back with PENDING");
    cell.set(status);
}

unsafe extern "C" fn create_done(context: *mut c_void, status: i32, object: *mut ObjectHeader) {
    let cell = unsafe { Arc::from_raw(context.cast::<Cell<(i32, Shared<Ptr>)>>()) };
    cell.set((status, Shared(object.cast())));
}

unsafe extern "C" fn close_done(context: *mut c_void) {
    let cell = unsafe { Arc::from_raw(context.cast::<Cell<()>>()) };
    cell.set(());
}

/// A request: what it returned, and how it ended.
pub fn request(f: impl FnOnce(RequestCompletion, *mut c_void) -> i32) -> (i32, Status) {
    let cell = Arc::new(Cell::default());
    let context = Arc::into_raw(cell.clone());
    let returned = f(Some(request_done), context.cast_mut().cast());
    if returned == PENDING {
        return (returned, Status(cell.get()));
    }
    assert_eq!(Arc::strong_count(&cell), 2, "called back although it returned {returned:#x}");
    drop(unsafe { Arc::from_raw(context) });
    (returned, Status(returned))
}

/// A request whose end matters only.
pub fn end_of(f: impl FnOnce(RequestCompletion, *mut c_void) -> i32) -> Status {
    request(f).1
}

/// A create function: the object.
pub fn create(
    f: impl FnOnce(CreateCompletion, *mut c_void, *mut Ptr) -> i32,
) -> Result<Ptr, Status> {
    let poison = std::ptr::without_provenance_mut(0x5a5a);
    let mut out: Ptr = poison;
    let cell: Arc<Cell<(i32, Shared<Ptr>)>> = Arc::default();
    let context = Arc::into_raw(cell.clone());
    let returned = f(Some(create_done), context.cast_mut().cast(), &mut out);
    let (status, object) = if returned == PENDING {
        let (status, object) = cell.get();
        assert_eq!(out, poison, "LT-1: the out parameter is not touched");
        (status, object.0)
    } else {
        drop(unsafe { Arc::from_raw(context) });
        (returned, out)
    };
    if status == 0 { Ok(object) } else { Err(Status(status)) }
}

/// Begin a close; what it returned, and the cell that its callback fills if that was PENDING.
pub fn begin_close(object: Ptr) -> (i32, Arc<Cell<()>>) {
    // The close entry is slot 0 of every table that has one.
    let close = unsafe { *(*object).dispatch.cast::<CloseObject>() };
    let cell = Arc::new(Cell::default());
    let context = Arc::into_raw(cell.clone());
    let returned = unsafe { close(object.cast(), Some(close_done), context.cast_mut().cast()) };
    if returned != PENDING {
        assert_eq!(returned, 0, "LT-3: a close cannot fail");
        drop(unsafe { Arc::from_raw(context) });
        cell.set(());
    }
    (returned, cell)
}

pub fn close(object: Ptr) {
    begin_close(object).1.get();
}

pub fn close_all(objects: &[Ptr]) {
    objects.iter().for_each(|&object| close(object));
}

pub fn table<T>(object: Ptr) -> &'static T {
    unsafe { &*(*object).dispatch.cast::<T>() }
}
