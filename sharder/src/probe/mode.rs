//! Whether the API server is told to ask the webhook about the rings, by what the probes came to: a webhook that is out of reach
//! is taken out of the way, as each create would wait for it, for each ring that concerns it.

use std::time::Duration;

use crate::lock::Mutex;
use tokio::{sync::watch, time::Instant};

use super::Answer;
use crate::news::tell;

/// So many probes in a row have to fail before it is taken out of the way, and to pass before it is asked again, at first.
const IN_A_ROW: u32 = 2;
/// So many have to pass at most, where it fails again and again: each change costs a write of all configurations.
const MAX_PASSES: u32 = 64;
/// Enabled for so long it is reliable again.
const RELIABLE: Duration = Duration::from_secs(600);

/// What the rings' webhook configurations say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WebhookMode {
    /// What they say already: nothing is known of the webhook.
    #[default]
    AsStored,
    /// The webhook is asked.
    Enabled,
    /// It is not.
    Disabled,
}

/// What is known of that. Clones share it.
pub(crate) type WebhookModes = watch::Sender<WebhookMode>;

/// Decides it, for as long as this replica leads.
pub(super) struct Switch<'a> {
    modes: &'a WebhookModes,
    state: Mutex<State>,
}

struct State {
    /// How many probes in a row came to the contrary, and how many have to before it is asked again.
    contrary: u32,
    passes: u32,
    since: Instant,
}

impl<'a> Switch<'a> {
    pub(super) fn new(modes: &'a WebhookModes) -> Self {
        let state = State { contrary: 0, passes: 1, since: Instant::now() };
        Self { modes, state: Mutex::new(state) }
    }

    /// Takes in a probe. One that fails by itself tells nothing of the webhook.
    pub(super) fn heard(&self, answer: &Answer) {
        let mode = match answer {
            Answer::Treated => WebhookMode::Enabled,
            Answer::Failed(_) => WebhookMode::Disabled,
            Answer::Passed | Answer::Unclear(_) => return,
        };
        let (state, now) = (&mut *self.state.lock(), *self.modes.borrow());
        state.contrary = if mode == now { 0 } else { state.contrary + 1 };
        let needed = match now {
            WebhookMode::AsStored => 1,
            WebhookMode::Enabled => IN_A_ROW,
            WebhookMode::Disabled => state.passes,
        };
        if state.contrary < needed {
            return;
        }
        if now == WebhookMode::Enabled {
            let is_reliable = state.since.elapsed() >= RELIABLE;
            state.passes = if is_reliable { IN_A_ROW } else { (state.passes * 2).min(MAX_PASSES) };
        }
        (state.contrary, state.since) = (0, Instant::now());
        tracing::info!(?mode, "changed whether the API server asks the webhook");
        tell(self.modes, mode);
    }
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        tell(self.modes, WebhookMode::AsStored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many probes that come to this; what it is then.
    fn after(switch: &Switch<'_>, times: u32, answer: &Answer) -> WebhookMode {
        (0..times).for_each(|_| switch.heard(answer));
        *switch.modes.borrow()
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_that_falls_silent_is_taken_out_of_the_way_and_back_later_each_time() {
        let modes = WebhookModes::default();
        let switch = Switch::new(&modes);
        let (passes, fails, unclear) =
            (Answer::Treated, Answer::Failed("timeout".to_owned()), Answer::Unclear("429".to_owned()));
        assert_eq!(after(&switch, 9, &unclear), WebhookMode::AsStored, "nothing is known");
        assert_eq!(after(&switch, 1, &passes), WebhookMode::Enabled);
        assert_eq!(after(&switch, 9, &unclear), WebhookMode::Enabled, "it can't say");
        assert_eq!(
            (after(&switch, 1, &fails), after(&switch, 1, &passes), after(&switch, 1, &fails)),
            (WebhookMode::Enabled, WebhookMode::Enabled, WebhookMode::Enabled)
        );
        assert_eq!(after(&switch, 1, &fails), WebhookMode::Disabled);
        for needed in [2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(after(&switch, needed - 1, &passes), WebhookMode::Disabled, "{needed}");
            assert_eq!(after(&switch, 1, &passes), WebhookMode::Enabled);
            assert_eq!(after(&switch, IN_A_ROW, &fails), WebhookMode::Disabled);
        }
        assert_eq!(after(&switch, MAX_PASSES, &passes), WebhookMode::Enabled);
        tokio::time::advance(RELIABLE).await;
        assert_eq!(after(&switch, IN_A_ROW, &fails), WebhookMode::Disabled);
        assert_eq!(after(&switch, IN_A_ROW, &passes), WebhookMode::Enabled, "it was reliable");
        drop(switch);
        assert_eq!(*modes.borrow(), WebhookMode::AsStored, "who leads no more knows nothing");
    }
}
