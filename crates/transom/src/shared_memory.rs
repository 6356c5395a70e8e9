//! Memory that peers' processes may map, as a buffer.

use transom_engine::raw::SharedMemory;

use crate::{Adapter, Buffer, Region, Result, explain};

// SAFETY: the memory is a mapping that belongs to its handle, stays where it is, holds zeros at first, and
// is reached by address only.
unsafe impl Buffer for SharedMemory {
    type Parts = SharedMemory;
    const WRITABLE: bool = true;

    fn take_apart(self) -> SharedMemory {
        self
    }

    fn memory(parts: &SharedMemory) -> (*mut u8, usize) {
        let start = usize::try_from(parts.address()).unwrap_or(0);
        (std::ptr::with_exposed_provenance_mut(start), parts.length())
    }

    unsafe fn put_together(parts: SharedMemory) -> SharedMemory {
        parts
    }
}

impl Adapter {
    /// Make `len` bytes of zeros, and register them, for bytes that cross once: **any peer on this host, a
    /// process of your user, that you Write or Send to from them may look at all of them, and one that you
    /// Read from into them may change all of them, until they are dropped, so keep nothing else there.**
    ///
    /// A peer's process copies what it is sent out of this memory itself, and what it is asked for into it,
    /// under its own check, instead of getting or giving a copy: twice as fast and more for large transfers.
    /// To every other peer, and for memory that was [`register`](Adapter::register)ed, nothing changes. [`Counters`](crate::Counters) and
    /// `transom show` say how many peers have mapped some. Dropping the region, or what
    /// [`deregister`](Region::deregister) gives back, takes the pages from every process at once, whatever
    /// peers do; [`Options::shared_regions`](crate::Options::shared_regions) turns the sharing off.
    ///
    /// ```
    /// # use transom::{Adapter, Grant, Rights};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let adapter = Adapter::open("127.0.0.1".parse()?)?;
    /// # let mut listener = adapter.listen("127.0.0.1:0".parse()?)?;
    /// # let connecting = adapter.connect(listener.address()).receives(1, 64);
    /// # let peer = std::thread::spawn(move || connecting.wait());
    /// # let owner = listener.next().wait()?.accept().wait()?;
    /// # let peer = peer.join().expect("no panic")?;
    /// # let target = adapter.register(vec![0; 65536])?;
    /// # let window = owner.bind(&target, .., Rights::WRITE)?;
    /// # owner.send(window.grant().to_bytes())?.wait()?;
    /// # let grant = Grant::from_bytes(&peer.recv().wait()?)?;
    /// let source = adapter.shared(65536)?;
    /// source.copy_in(0, b"for a peer to look at")?;
    /// peer.write(grant, source.slice(..))?.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for no bytes, or more than 64 GiB;
    /// [`System`](crate::ErrorKind::System) if memory, descriptors or tokens are lacking;
    /// [`AddressGone`](crate::ErrorKind::AddressGone), [`Forked`](crate::ErrorKind::Forked).
    pub fn shared(&self, len: usize) -> Result<Region<SharedMemory>> {
        let asked = || format!("making {len} bytes to be shared");
        let memory =
            self.raw().shared_memory(len).map_err(|error| explain::call(&asked(), &error))?;
        self.register(memory)
    }
}
