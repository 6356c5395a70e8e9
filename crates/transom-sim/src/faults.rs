//! The faults that the world does to honest and dishonest programs alike.

use transom_core::EndReason;

use crate::watch::EndId;
use crate::world::World;

impl World {
    /// Something goes wrong.
    pub(crate) fn fault(&mut self) {
        let Some((link, side)) = self.any_end() else { return };
        match self.rng.below(14) {
            0 => self.reset(link),
            1 => {
                self.hit("half-open");
                self.hurt(link);
                self.links[link].ways[side].lost = true;
                if self.rng.once_in(2) {
                    self.links[link].ways[1 - side].lost = true;
                }
            }
            2..=4 => {
                self.hit("stalled");
                self.hurt(link);
                let way = &mut self.links[link].ways[side];
                way.stalled = !way.stalled;
            }
            5..=7 => self.spoil(),
            8 => {
                self.hit("link gave up");
                self.hurt(link);
                self.give_up((link, side));
            }
            9 if self.profile.dying => self.die(),
            10..=12 if self.profile.dying => self.doom(),
            _ if self.profile.vanishing => self.vanish(),
            _ => {}
        }
    }

    /// Pages go away.
    pub(crate) fn vanish(&mut self) {
        {
            {
                let place = self.rng.index(self.places.len());
                let process = self.places[place];
                let buffers = self.processes[process].arena.buffers();
                if let Some((address, length)) = self.rng.pick(&buffers).copied() {
                    let valid = if self.rng.once_in(2) { 0 } else { self.rng.index(length) };
                    if valid > 0 {
                        self.hit("file truncated");
                    }
                    self.say(|| format!("pages of {address:#x}+{valid:#x} vanish"));
                    self.processes[process].arena.truncate(address, valid);
                }
            }
        }
    }

    /// Both sides may end by time-out, or without a word.
    fn hurt(&mut self, link: usize) {
        let mut watch = self.watcher.see();
        for side in [0, 1] {
            if let Some(stream) = watch.ends.get_mut(&(link, side)) {
                stream.hurt = true;
            }
        }
    }

    fn reset(&mut self, link: usize) {
        self.hit("reset");
        self.say(|| format!("link {link} is reset"));
        self.hurt(link);
        for way in &mut self.links[link].ways {
            // Bytes received before the reset still count.
            if self.rng.once_in(2) {
                way.clear();
            }
            way.closed = true;
        }
    }

    /// A bit changes on the way. Only where a checksum is there to notice.
    fn spoil(&mut self) {
        let mut some = self.ends();
        {
            let watch = self.watcher.see();
            let open = |end: EndId| watch.ends.get(&end).is_some_and(|stream| stream.open);
            some.retain(|&(link, side)| {
                let moves = self.links[link].checksum && self.links[link].ways[side].bytes > 0;
                moves && open((link, 0)) && open((link, 1))
            });
        }
        let Some((link, side)) = self.rng.pick(&some).copied() else { return };
        let bytes = self.links[link].ways[side].bytes;
        let mut watch = self.watcher.see();
        let (at, bit) = (self.rng.index(bytes), self.rng.below(8) as u32);
        if self.links[link].ways[side].spoil(at, bit) {
            watch.counters.hit("bytes corrupted");
            for side in [0, 1] {
                if let Some(stream) = watch.ends.get_mut(&(link, side)) {
                    (stream.spoilt, stream.hurt) = (true, true);
                }
            }
        }
    }

    /// A process dies, and another takes its place.
    fn die(&mut self) {
        let place = self.rng.index(self.places.len());
        self.kill(self.places[place]);
    }

    /// A process will die inside of the ring code, wherever it is then.
    fn doom(&mut self) {
        let mut some = self.ends();
        some.retain(|id| {
            let end = self.links[id.0].ends[id.1].as_ref();
            end.is_some_and(|end| end.rings.is_some() && end.connection.facts().is_some())
        });
        let Some(id) = self.rng.pick(&some).copied() else { return };
        let points = self.rng.between(1, 3) as u32;
        if let Some(rings) = self.end_mut(id).and_then(|end| end.rings.as_ref()) {
            rings.duplex.area().doom(points);
        }
    }

    /// A process is dead.
    pub(crate) fn kill(&mut self, process: usize) {
        let Some(place) = self.places.iter().position(|p| *p == process) else { return };
        self.hit("process died");
        self.say(|| format!("process {process} dies"));
        self.processes[process].alive = false;
        for (link, side) in self.ends() {
            if self.links[link].ends[side].as_ref().is_none_or(|end| end.process != process) {
                continue;
            }
            self.hurt(link);
            self.links[link].ends[side] = None;
            self.links[link].ways[side].clear();
            let way = &mut self.links[link].ways[1 - side];
            if self.rng.once_in(2) {
                way.clear();
            }
            way.closed = true;
            if let Some(stream) = self.watcher.see().ends.get_mut(&(link, side)) {
                stream.ended.get_or_insert(EndReason::Disconnected);
            }
        }
        self.hit("process restarted");
        self.places[place] = self.start_process();
    }
}
