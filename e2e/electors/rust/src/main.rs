//! Takes part in an election by kube-leader-election, and says `leading` and `lost`: `rust-elector NAMESPACE LOCK IDENTITY
//! SECONDS`, where a lock counts for so many seconds. It connects as KUBECONFIG says.

use std::{
    env,
    time::{Duration, Instant},
};

use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [namespace, lock, identity, seconds] = &arguments[..] else {
        return Err("usage: rust-elector NAMESPACE LOCK IDENTITY SECONDS".into());
    };
    let duration = Duration::from_secs(seconds.parse()?);
    let params = LeaseLockParams { lease_name: lock.clone(), holder_id: identity.clone(), lease_ttl: duration };
    let lock = LeaseLock::new(kube::Client::try_default().await?, namespace, params);
    // The library says what the lock is, and leaves it to who uses it when a lead ends that can't be renewed.
    let mut leads_since: Option<Instant> = None;
    loop {
        let asked = Instant::now();
        let leads = match tokio::time::timeout(duration / 3, lock.try_acquire_or_renew()).await {
            Ok(Ok(LeaseLockResult::Acquired(_))) => Some(asked),
            Ok(Ok(LeaseLockResult::NotAcquired(_))) => None,
            Ok(Err(error)) => {
                eprintln!("{error}");
                leads_since
            }
            Err(_) => leads_since,
        };
        let leads = leads.filter(|renewed| renewed.elapsed() < duration);
        match (leads_since, leads) {
            (None, Some(_)) => println!("leading"),
            (Some(_), None) => println!("lost"),
            _ => {}
        }
        leads_since = leads;
        tokio::time::sleep(duration / 3).await;
    }
}
