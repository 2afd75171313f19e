//! Numbers by their order alone: two states that differ only in how many writes came before are one.

use crate::state::{Event, Job, Next, State};

impl State {
    pub(crate) fn make_canonical(&mut self) {
        self.rank_versions();
        self.rank_drains();
        for (parted, object) in self.parted.iter_mut().zip(self.now.objects) {
            *parted &= object.child.is_some() && object.child != object.shard;
        }
    }

    fn rank_versions(&mut self) {
        let mut known = 0_u64;
        self.each_version(|version| known |= 1 << *version);
        self.each_version(|version| *version = below(known, *version));
    }

    /// Drain values are only ever compared for equality; their order among each other stays.
    fn rank_drains(&mut self) {
        let mut known = 0_u64;
        self.each_drain(|value| known |= 1 << *value);
        self.each_drain(|value| *value = below(known, *value));
    }

    /// A drain value that is not in use yet.
    pub(crate) fn fresh_drain(&mut self) -> u8 {
        let mut fresh = 0;
        self.each_drain(|value| fresh = fresh.max(*value + 1));
        fresh
    }

    fn each_version(&mut self, mut each: impl FnMut(&mut u8)) {
        for snapshot in [&mut self.now, &mut self.past] {
            each(&mut snapshot.version);
            snapshot.objects.iter_mut().for_each(|object| each(&mut object.version));
        }
        for pod in &mut self.pods {
            each(&mut pod.floor);
            pod.objects.iter_mut().filter_map(|held| held.drained.as_mut()).for_each(|(_, version)| each(version));
            let Some(watch) = &mut pod.watch else { continue };
            each(&mut watch.delivered);
            for event in &mut *watch.queue {
                match event {
                    Event::Initial(_) => {}
                    Event::InitialEnd(version)
                    | Event::Added(_, version)
                    | Event::Deleted(_, version)
                    | Event::Bookmark(version) => each(version),
                }
            }
        }
        self.jobs().for_each(|job| each(&mut job.view.version));
    }

    /// What the sharder has under way.
    pub(crate) fn jobs(&mut self) -> impl Iterator<Item = &mut Job> {
        self.replicas.iter_mut().map(|replica| &mut replica.job).chain([&mut self.late]).flatten()
    }

    fn each_drain(&mut self, mut each: impl FnMut(&mut u8)) {
        for snapshot in [&mut self.now, &mut self.past] {
            snapshot.objects.iter_mut().filter_map(|object| object.drain.as_mut()).for_each(&mut each);
        }
        for held in self.pods.iter_mut().flat_map(|pod| &mut pod.objects) {
            held.drained.iter_mut().for_each(|(value, _)| each(value));
            held.acknowledgement.iter_mut().for_each(&mut each);
        }
        for job in self.jobs() {
            job.view.drain.iter_mut().for_each(&mut each);
            if let Next::Drain(value) = &mut job.next {
                each(value);
            }
        }
    }
}

/// How many known numbers are lower.
fn below(known: u64, number: u8) -> u8 {
    u8::try_from((known & ((1 << number) - 1)).count_ones()).expect("64 at most")
}
