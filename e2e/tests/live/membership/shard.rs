//! A shard with a proxy, and what its controller would notice of the gate.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::StatusCode;
use ringside_e2e::{
    compatibility::client::{Ask, Endpoint, Http},
    proxy::Proxy,
};
use tokio_util::task::AbortOnDropHandle;

const WEBSITES: &str = "/apis/web.example.com/v1/namespaces/default/websites";
/// No resource of the ring: of those that are a watch says even without the Lease what leaves.
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Between two questions whether the gate is open.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) proxy: Proxy,
    endpoint: Endpoint,
}

impl Shard {
    pub(crate) fn new(name: &str, proxy: Proxy) -> Self {
        let token = std::fs::read_to_string(proxy.access.join("token")).unwrap();
        let address = (Ipv4Addr::LOCALHOST, proxy.port).into();
        let endpoint = Endpoint::new(address, &proxy.access.join("ca.crt"), token.trim()).unwrap();
        Self { name: name.to_owned(), proxy, endpoint }
    }

    /// Whether it says that it is ready.
    pub(crate) async fn is_ready(&self) -> bool {
        self.proxy.is_ready().await
    }

    /// Whether its proxy's metrics say that the Lease is held.
    pub(crate) async fn says_held(&self) -> bool {
        let metrics = ringside_e2e::system::metrics(self.proxy.admin_port).await.unwrap();
        let held = metrics.lines().find(|line| line.starts_with("ringside_proxy_lease_held{"));
        held.and_then(|line| line.rsplit(' ').next()).unwrap().parse::<f64>().unwrap() > 0.0
    }

    /// Opens a watch, and asks for a list over and over.
    pub(crate) async fn controller(&self) -> Controller {
        let ask = Ask::get(format!("{CONFIG_MAPS}?watch=true"));
        let mut watch = self.endpoint.open(Http::Two, &ask, "watch").await.unwrap();
        assert_eq!(watch.head.status, StatusCode::OK);
        let noticed: Arc<Mutex<Noticed>> = Arc::default();
        let (cut, served) = (noticed.clone(), noticed.clone());
        let watching = tokio::spawn(async move {
            while let Ok(Some(_)) = watch.piece().await {}
            locked(&cut).cut = Some(Instant::now());
        });
        let tasks = [watching, self.asks(served)].map(AbortOnDropHandle::new);
        Controller { noticed, _tasks: tasks.into() }
    }

    /// Asks for a list over and over.
    pub(crate) fn controller_of_ring(&self) -> Controller {
        let noticed: Arc<Mutex<Noticed>> = Arc::default();
        let asking = AbortOnDropHandle::new(self.asks(noticed.clone()));
        Controller { noticed, _tasks: vec![asking] }
    }

    fn asks(&self, noticed: Arc<Mutex<Noticed>>) -> tokio::task::JoinHandle<()> {
        let endpoint = self.endpoint.clone();
        tokio::spawn(async move {
            loop {
                let answer = endpoint.exchange(Http::Two, &Ask::get(WEBSITES), "list").await;
                if answer.is_ok_and(|answer| answer.status == StatusCode::OK) {
                    locked(&noticed).served.push(Instant::now());
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    }
}

/// What a controller notices.
#[derive(Debug, Default)]
struct Noticed {
    /// When its watch was cut.
    cut: Option<Instant>,
    /// When it was answered.
    served: Vec<Instant>,
}

pub(crate) struct Controller {
    noticed: Arc<Mutex<Noticed>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Controller {
    /// When its watch was cut, if it was.
    pub(crate) fn cut(&self) -> Option<Instant> {
        locked(&self.noticed).cut
    }

    /// When it was answered.
    pub(crate) fn served(&self) -> Vec<Instant> {
        locked(&self.noticed).served.clone()
    }

    /// The first answer after that moment.
    pub(crate) fn served_after(&self, moment: Instant) -> Option<Instant> {
        locked(&self.noticed).served.iter().copied().find(|at| *at > moment)
    }
}

fn locked(noticed: &Mutex<Noticed>) -> std::sync::MutexGuard<'_, Noticed> {
    noticed.lock().unwrap_or_else(PoisonError::into_inner)
}
