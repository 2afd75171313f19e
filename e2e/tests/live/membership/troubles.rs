//! API servers that are slow, refuse or hang, and networks that are broken, between a shard's proxy and its Lease.

use futures::future::join_all;
use http::StatusCode;
use ringside_e2e::{
    eventually::eventually,
    line::{Line, Passing},
    relay::{Hindrance, Offer, Relay},
};

use super::{
    fixture::{DEADLINE, Fixture},
    history::Seen,
};

/// What comes between a proxy and its Lease, and goes again.
enum Trouble {
    Relay(Relay, Hindrance),
    Line(Line),
}

impl Trouble {
    fn url(&self) -> String {
        match self {
            Self::Relay(relay, _) => relay.url(),
            Self::Line(line) => format!("https://{}", line.address()),
        }
    }

    fn begin(&self) {
        match self {
            Self::Relay(relay, hindrance) => relay.hinder("/leases", *hindrance),
            Self::Line(line) => line.set(Passing::Nothing),
        }
    }

    fn end(&self) {
        match self {
            Self::Relay(relay, _) => relay.mend(),
            Self::Line(line) => line.set(Passing::Everything),
        }
    }
}

/// What lasts until the sharder has taken over: the gate is closed by then, and opens when the shard has its Lease again.
pub(crate) async fn never_both(fixture: &Fixture) {
    fixture.ring("cut").await;
    let relay = async || Relay::start(fixture.system.control_plane(), Offer::Both).await.unwrap();
    let troubles = [
        ("cut-refused", Trouble::Relay(relay().await, Hindrance::Refused(StatusCode::TOO_MANY_REQUESTS))),
        // Each renewal is carried out, and the proxy does not hear of it in time.
        ("cut-late", Trouble::Relay(relay().await, Hindrance::Late(10 * DEADLINE))),
        ("cut-parted", Trouble::Line(Line::to(fixture.api_server()).await.unwrap())),
    ];
    join_all(troubles.iter().map(|(name, trouble)| cut_off(fixture, name, trouble))).await;
}

async fn cut_off(fixture: &Fixture, name: &str, trouble: &Trouble) {
    let shard = fixture.shard(&"cut".parse().unwrap(), name, &trouble.url(), None).await;
    let controller = shard.controller().await;
    let renewed = fixture.history.until_renewed(name).await;
    trouble.begin();
    let cut = eventually("its gate closes", DEADLINE, || async { controller.cut().ok_or("it is open".to_owned()) });
    let cut = cut.await.unwrap();
    let taken = fixture.history.until_taken(name, renewed.at).await;
    assert!(cut < taken.at, "{name}: closed {:?} after it was taken over", cut.duration_since(taken.at));
    assert!(!shard.proxy.is_ready().await && !shard.says_held().await, "{name}");
    let late = fixture.history.of(name, renewed.at).iter().any(|seen| seen.is_held() && seen.state == "expired");
    assert!(late, "{name} was taken over before it was late");

    trouble.end();
    let back = fixture.history.until("it has its Lease again", name, taken.at, Seen::is_held).await;
    let served = eventually("it is served again", DEADLINE, || async {
        controller.served_since(taken.at).ok_or("not yet".to_owned())
    });
    let (served, acquired) = (served.await.unwrap(), back.acquired.unwrap());
    assert!(served > acquired, "{name}: served {:?} before it had its Lease again", acquired.duration_since(served));
    assert!(shard.says_held().await, "{name}");
}
