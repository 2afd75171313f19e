//! Replicas of the sharder that end.

use super::{Sharder, System, SystemError};

impl System {
    /// Ends a replica of the sharder gracefully; its Pod stays.
    pub async fn stop_sharder(&mut self, name: &str) -> Result<(), SystemError> {
        self.take_sharder(name)?.stop().await
    }

    /// Kills a replica of the sharder (SIGKILL); its Pod stays.
    pub async fn kill_sharder(&mut self, name: &str) -> Result<(), SystemError> {
        self.take_sharder(name)?.kill().await
    }

    fn take_sharder(&mut self, name: &str) -> Result<Sharder, SystemError> {
        let index = self.sharders.iter().position(|sharder| sharder.name() == name);
        let index = index.ok_or_else(|| SystemError::NoSuchSharder(name.to_owned()))?;
        Ok(self.sharders.remove(index))
    }
}
