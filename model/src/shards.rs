//! The shards: a controller that works on what it sees, and its proxy; and what the world does to them.

use crate::{
    actions::Action,
    cluster::change,
    config::{Handover, Mistake},
    queue::Queue,
    state::{Broken, Event, Held, Holder, OBJECTS, Object, Pod, State, Watch, Write},
};

impl Handover {
    pub(crate) fn shard_steps(&self, state: &mut State, action: Action) -> bool {
        match action {
            // A controller is at work on all that it has, without a pause, and for a while on what it had. Between its last
            // request and this lies less than the grace.
            Action::Rest(shard, object) => {
                let held = &mut state.pods[shard].objects[object];
                !held.cached && std::mem::take(&mut held.worked_on)
            }
            // Falls silent here, and goes on at any time after that.
            Action::Wake(shard, object) => {
                let (pod, left) = (&mut state.pods[shard], &mut state.left.wakes);
                let wakes = pod.objects[object].worked_on && !pod.objects[object].woken && *left > 0;
                *left -= u8::from(wakes);
                pod.objects[object].woken |= wakes;
                wakes
            }
            Action::Write(shard, object) => send(state, shard, object),
            Action::WriteLands(shard, object) => self.write_lands(state, shard, object),
            Action::Deliver(shard) => self.deliver(&mut state.pods[shard]),
            Action::Bookmark(shard) => bookmark(state, shard),
            Action::List(shard, old) => self.list(state, shard, old),
            Action::SeeDrain(shard, object) => see_drain(state, shard, object),
            Action::ForgetDrain(shard, object) => {
                let drained = &mut state.pods[shard].objects[object].drained;
                let stored = state.now.objects[object];
                let is_over = drained.is_some_and(|(value, _)| !is_drained(stored, shard, value));
                if is_over {
                    *drained = None;
                }
                is_over
            }
            Action::Acknowledge(shard, object) => self.send_acknowledgement(&mut state.pods[shard], object),
            Action::AcknowledgementLands(shard, object, webhook) => {
                if webhook.is_none() && state.left.silences == 0 {
                    return false;
                }
                let value = state.pods[shard].objects[object].acknowledgement.take();
                state.left.silences -= u8::from(webhook.is_none() && value.is_some());
                value.inspect(|value| self.acknowledge(state, (shard, object), *value, webhook)).is_some()
            }
            Action::AcknowledgementLost(shard, object) => {
                let lost = state.left.losses > 0 && state.pods[shard].objects[object].acknowledgement.take().is_some();
                state.left.losses -= u8::from(lost);
                lost
            }
            _ => false,
        }
    }

    /// An event reaches the controller; the proxy reads it in passing.
    fn deliver(&self, pod: &mut Pod) -> bool {
        let Some(watch) = pod.watch.as_mut().filter(|_| !pod.paused) else { return false };
        let Some(event) = watch.queue.next() else { return false };
        match event {
            Event::Initial(object) => {
                let object = usize::from(object);
                pod.objects[object].take_in();
                watch.shown.get_or_insert_default()[object] = true;
                if self.makes(Mistake::InitialEventsCount) {
                    // They carry any resourceVersion.
                    watch.delivered = watch.delivered.max(pod.floor).max(last(pod.objects));
                }
            }
            Event::InitialEnd(version) => {
                let shown = watch.shown.take().unwrap_or_default();
                pod.objects.iter_mut().zip(shown).for_each(|(held, shown)| held.cached &= shown);
                watch.delivered = version;
            }
            Event::Added(object, _) => pod.objects[usize::from(object)].take_in(),
            Event::Deleted(object, version) => {
                pod.objects[usize::from(object)].cached = false;
                watch.delivered = version;
            }
            Event::Bookmark(version) => watch.delivered = version,
        }
        true
    }

    /// The controller lists and watches from there; `old`: it is asked of an API server that lags behind.
    fn list(&self, state: &mut State, shard: usize, old: bool) -> bool {
        let State { now, past, pods, .. } = state;
        let (pod, shown) = (&mut pods[shard], if old { &*past } else { &*now });
        let may_begin =
            pod.runs && !pod.ended && !pod.paused && pod.holds && pod.watch.as_ref().is_none_or(|watch| watch.ended);
        let is_too_old = shown.version < pod.floor && !self.makes(Mistake::OldLists);
        if !may_begin || is_too_old || (old && past == now) {
            return false;
        }
        let numbers = || (0..self.case.objects).zip(0_u8..);
        let mut queue: Queue = numbers()
            .filter(|(object, _)| shown.objects[*object].is_shown_to(shard))
            .map(|(_, number)| Event::Initial(number))
            .collect();
        queue.push(Event::InitialEnd(shown.version));
        // What has happened since, in order.
        let mut since: Vec<_> = numbers()
            .filter_map(|(object, number)| {
                let (before, after) = (shown.objects[object], now.objects[object]);
                let event = change(number, before.is_shown_to(shard), after.is_shown_to(shard), after.version)?;
                Some((after.version, event))
            })
            .collect();
        since.sort_unstable_by_key(|(version, _)| *version);
        queue.extend(since.into_iter().map(|(_, event)| event));
        pod.watch = Some(Watch { queue, shown: Some([false; OBJECTS]), ..Watch::default() });
        true
    }

    /// A write arrives. Without the API server's fence it is carried out, whichever shard sent it. What no proxy could
    /// wait for any more is not counted then. The fence judges it as it arrives: behind it each one counts that lands.
    fn write_lands(&self, state: &mut State, shard: usize, object: usize) -> bool {
        let write = std::mem::take(&mut state.pods[shard].objects[object].write);
        let is_foreign = state.now.objects[object].shard.is_some_and(|owner| usize::from(owner) != shard);
        let is_refused = self.case.fence && is_foreign && !self.makes(Mistake::NoApiServerFence);
        let is_waited_for = matches!(write, Write::UnderWay | Write::OfBefore);
        let counts = is_waited_for || (write == Write::LeftBehind && self.case.fence);
        if counts && is_foreign && !is_refused {
            state.broken = Some(Broken::ForeignWrite(u8::try_from(shard).expect("few shards")));
        }
        write != Write::None
    }

    /// Nothing of the controller can concern the object any more: its proxy releases it.
    fn send_acknowledgement(&self, pod: &mut Pod, object: usize) -> bool {
        let held = pod.objects[object];
        let Some((value, version)) = held.drained else { return false };
        let past = match &pod.watch {
            Some(watch) if !watch.ended => watch.shown_all(self) && watch.delivered >= version,
            // The controller still has what it saw before.
            Some(_) => pod.ended || self.makes(Mistake::EndedWatchForgotten),
            // Of what was before it, a proxy knows nothing.
            None => true,
        };
        let sees_nothing = past || self.makes(Mistake::ViewsIgnored);
        // One that has it in its cache may have been idle for the grace, and begin any time.
        let rests = held.cached || !held.worked_on || self.makes(Mistake::NoGrace);
        let is_quiet = match held.write {
            Write::None => true,
            Write::OfBefore => self.makes(Mistake::WritesOfBeforeForgotten),
            Write::UnderWay | Write::LeftBehind => self.makes(Mistake::WritesIgnored),
        };
        let may = pod.runs && !pod.paused && pod.holds && held.acknowledgement.is_none();
        if !(may && sees_nothing && rests && is_quiet) {
            return false;
        }
        let fenced = !self.makes(Mistake::NoFence);
        pod.objects[object] = Held { fenced, trusted: false, acknowledgement: Some(value), ..held };
        true
    }

    pub(crate) fn world_steps(&self, state: &mut State, action: Action) -> bool {
        let left = &mut state.left;
        let (budget, may) = match action {
            Action::Kill(shard) => (&mut left.kills, state.pods[shard].runs),
            // Of what one knows that has nothing, nothing is lost.
            Action::KillProxy(shard) => {
                let pod = &state.pods[shard];
                let has_any = pod.objects.iter().any(|held| *held != Held::default());
                (&mut left.proxies, pod.runs && !pod.ended && has_any)
            }
            Action::End(shard) => (&mut left.releases, state.pods[shard].runs && !state.pods[shard].ended),
            Action::Restart(shard) => (&mut left.restarts, !state.pods[shard].runs && self.is_of_the_case(shard)),
            Action::Pause(shard) => (&mut left.pauses, state.pods[shard].runs && !state.pods[shard].paused),
            Action::Cut(shard) => (&mut left.cuts, state.pods[shard].watch.as_ref().is_some_and(|watch| !watch.ended)),
            Action::Strip(object) => (&mut left.strips, state.now.objects[object].shard.is_some()),
            Action::Touch(_) => (&mut left.touches, true),
            Action::CatchUp => (&mut left.catch_ups, state.past != state.now),
            Action::Release(shard) => return release(state, shard),
            Action::Resume(shard) => return std::mem::take(&mut state.pods[shard].paused),
            _ => return false,
        };
        if !may || *budget == 0 {
            return false;
        }
        *budget -= 1;
        self.befall(state, action);
        true
    }

    /// The proxy dies, and its container begins again while the controller runs on: with the Lease of its Pod, which it has to
    /// renew by the next tick, and without any memory. What it does not know is asked about; nothing older is shown.
    fn begin_again(&self, state: &mut State, shard: usize) {
        let (version, trusts) = (state.now.version, self.makes(Mistake::RestartTrusts));
        let trusted = self.makes(Mistake::NobodysTrusted);
        let pod = &mut state.pods[shard];
        for held in &mut pod.objects {
            // The controller's requests broke off; what it makes of that is unknown.
            held.woken |= std::mem::take(&mut held.worked_on);
            if held.write == Write::UnderWay {
                held.write = Write::OfBefore;
            }
            (held.drained, held.fenced, held.trusted) = (None, !trusts, trusted);
        }
        let is_fresh = pod.is_fresh && self.case.steady[shard];
        *pod = Pod { paused: false, is_fresh, renewal: None, watch: None, floor: version, ..*pod };
    }

    fn befall(&self, state: &mut State, action: Action) {
        match action {
            Action::Kill(shard) => die(state, shard),
            Action::KillProxy(shard) => self.begin_again(state, shard),
            // The proxy goes on, until requests have finished, and what is drained may be released meanwhile: by the
            // grace, in which the controller sends nothing, so it has no step of its own.
            Action::End(shard) => {
                let pod = &mut state.pods[shard];
                (pod.ended, pod.watch) = (true, None);
                for held in &mut pod.objects {
                    (held.cached, held.worked_on, held.woken) = (false, false, false);
                }
            }
            // What it sent before may still be on its way.
            Action::Restart(shard) => state.pods[shard].runs = true,
            Action::Pause(shard) => state.pods[shard].paused = true,
            Action::Cut(shard) => {
                if let Some(watch) = &mut state.pods[shard].watch {
                    *watch = Watch { delivered: watch.delivered, ended: true, ..Watch::default() };
                }
            }
            Action::Strip(object) => self.strip(state, object),
            Action::Touch(object) => state.store(object, state.now.objects[object]),
            Action::CatchUp => {
                state.past = state.now;
                state.replicas.iter_mut().for_each(|replica| replica.wrote = Default::default());
            }
            _ => {}
        }
    }
}

impl Watch {
    /// Whether it is done with what there was at its beginning.
    fn shown_all(&self, model: &Handover) -> bool {
        self.shown.is_none() || model.makes(Mistake::InitialEventsCount)
    }
}

impl Held {
    fn take_in(&mut self) {
        self.cached = true;
        self.worked_on = true;
    }
}

/// The highest resourceVersion that the proxy could compare with.
fn last(objects: [Held; OBJECTS]) -> u8 {
    objects.iter().filter_map(|held| held.drained.map(|(_, version)| version)).max().unwrap_or_default()
}

/// A controller sends a write, and its proxy lets it through.
fn send(state: &mut State, shard: usize, object: usize) -> bool {
    let stored = state.now.objects[object];
    let pod = &mut state.pods[shard];
    let held = &mut pod.objects[object];
    let acts = pod.runs && !pod.ended && !pod.paused && pod.holds;
    let may = acts && (held.worked_on || held.woken) && held.write == Write::None;
    // What was released is asked for: it may be back.
    let is_anothers = stored.shard.is_some_and(|owner| usize::from(owner) != shard);
    let passes = !held.fenced || stored.is_shown_to(shard) || (held.trusted && !is_anothers);
    if !may || !passes || state.left.writes == 0 {
        return false;
    }
    state.left.writes -= 1;
    // One request, and the reconcile is over.
    held.woken = false;
    (held.fenced, held.trusted) = (false, false);
    held.write = Write::UnderWay;
    true
}

/// How far a watch has come that has nothing to show.
fn bookmark(state: &mut State, shard: usize) -> bool {
    let version = state.now.version;
    let pod = &mut state.pods[shard];
    let waits_for_one = pod.objects.iter().any(|held| held.drained.is_some());
    let Some(watch) = pod.watch.as_mut().filter(|watch| waits_for_one && !watch.ended) else { return false };
    if !watch.queue.is_empty() || watch.delivered >= version {
        return false;
    }
    watch.queue.push(Event::Bookmark(version));
    true
}

fn see_drain(state: &mut State, shard: usize, object: usize) -> bool {
    let Object { shard: owner, drain: Some(value), version, .. } = state.now.objects[object] else { return false };
    let pod = &mut state.pods[shard];
    let is_new = pod.objects[object].drained.is_none_or(|(seen, _)| seen != value);
    if !pod.runs || pod.paused || !pod.holds || owner.map(usize::from) != Some(shard) || !is_new {
        return false;
    }
    pod.objects[object].drained = Some((value, version));
    pod.floor = pod.floor.max(version);
    true
}

fn is_drained(stored: Object, shard: usize, value: u8) -> bool {
    stored.shard.map(usize::from) == Some(shard) && stored.drain == Some(value)
}

/// The proxy ends after its controller: the Lease has no holder from then on.
fn release(state: &mut State, shard: usize) -> bool {
    let pod = &state.pods[shard];
    let is_done = pod.renewal.is_none() && pod.objects.iter().all(|held| held.write == Write::None);
    let may = pod.ended && !pod.paused && pod.holds && is_done;
    if may {
        die(state, shard);
        state.write_lease(shard, Holder::Nobody);
    }
    may
}

/// Both processes end. What is under way stays so.
fn die(state: &mut State, shard: usize) {
    state.close(shard);
    let pod = &mut state.pods[shard];
    let kept = |held: &Held| {
        let write = if held.write == Write::None { Write::None } else { Write::LeftBehind };
        Held { write, acknowledgement: held.acknowledgement, ..Held::default() }
    };
    *pod = Pod { objects: [kept(&pod.objects[0]), kept(&pod.objects[1])], ..Pod::default() };
}
