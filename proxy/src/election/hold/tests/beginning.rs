//! The beginning of a term of the shard Lease.

use super::*;

/// As after a restart of the proxy: its controller may lead, and nothing is known of the lock before the first look has an answer.
#[tokio::test(start_paused = true)]
async fn doubt_is_warned_of_once_it_lasts() {
    for name in locks() {
        let server = Server::default();
        let shard = [leading(&server, &name).await];
        let hold = &shard[0].1;
        hold.knows_nothing();
        server.is_silent(true);
        pass(&shard, 3.0).await;
        assert!(!may_act(&shard[0]).await && hold.doubted_for() > Duration::from_secs(2), "the leader is unknown");
        assert!(!hold.leads.is_warned_of(), "nor that the ring lost it");
        pass(&shard, 2.0).await;
        assert!(hold.leads.is_warned_of());
        server.is_silent(false);
        pass(&shard, 5.0).await;
        assert!(may_act(&shard[0]).await && !hold.leads.is_warned_of());
        // Within a term there was an answer before, from which the lock lasts.
        server.is_silent(true);
        pass(&shard, 17.0).await;
        assert!(hold.leads.is_warned_of());
    }
}
