//! A shard with a proxy, and what its controller would notice of the gate.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use ringside_e2e::{
    compatibility::client::{Ask, Endpoint, Http},
    proxy::Proxy,
};
use tokio_util::task::AbortOnDropHandle;

const WEBSITES: &str = "/apis/web.example.com/v1/namespaces/default/websites";
/// No resource of the ring, and by a watch that API servers compress. Where the proxy can read a watch it ends in order, when the
/// Lease is held again; any other breaks off when it is lost.
const COMPRESSED: &str = "/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan";

/// Between two questions whether the gate is open.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Shard {
    pub(crate) proxy: Proxy,
    endpoint: Endpoint,
}

impl Shard {
    pub(crate) fn new(proxy: Proxy) -> Self {
        let token = std::fs::read_to_string(proxy.access.join("token")).unwrap();
        let address = (Ipv4Addr::LOCALHOST, proxy.port).into();
        let endpoint = Endpoint::new(address, &proxy.access.join("ca.crt"), token.trim()).unwrap();
        Self { proxy, endpoint }
    }

    /// Whether its proxy's metrics say that the Lease is held.
    pub(crate) async fn says_held(&self) -> bool {
        let metrics = ringside_e2e::system::metrics(self.proxy.admin_port).await.unwrap();
        let held = metrics.lines().find(|line| line.starts_with("ringside_proxy_lease_held{"));
        held.and_then(|line| line.rsplit(' ').next()).unwrap().parse::<f64>().unwrap() > 0.0
    }

    /// Opens a watch, and asks for a list over and over.
    pub(crate) async fn controller(&self) -> Controller {
        let ask = Ask::get(COMPRESSED).gzip();
        let mut watch = self.endpoint.open(Http::Two, &ask, "watch").await.unwrap();
        assert_eq!(watch.head.status, StatusCode::OK);
        assert!(watch.head.headers.contains_key(http::header::CONTENT_ENCODING), "it can be read");
        let mut controller = self.controller_of_ring();
        let cut = controller.cut.clone();
        controller.tasks.push(AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok(Some(_)) = watch.piece().await {}
            locked(&cut).push(Timestamp::now());
        })));
        controller
    }

    /// Asks for a list over and over.
    pub(crate) fn controller_of_ring(&self) -> Controller {
        let (endpoint, served) = (self.endpoint.clone(), Moments::default());
        let noted = served.clone();
        let asking = tokio::spawn(async move {
            loop {
                let answer = endpoint.exchange(Http::Two, &Ask::get(WEBSITES), "list").await;
                if answer.is_ok_and(|answer| answer.status == StatusCode::OK) {
                    locked(&noted).push(Timestamp::now());
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Controller { cut: Moments::default(), served, tasks: vec![AbortOnDropHandle::new(asking)] }
    }
}

type Moments = Arc<Mutex<Vec<Timestamp>>>;

/// What a controller notices.
pub(crate) struct Controller {
    cut: Moments,
    served: Moments,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Controller {
    /// When its watch was cut, if it was.
    pub(crate) fn cut(&self) -> Option<Timestamp> {
        locked(&self.cut).first().copied()
    }

    /// The first answer since that moment.
    pub(crate) fn served_since(&self, moment: Timestamp) -> Option<Timestamp> {
        locked(&self.served).iter().copied().find(|at| *at >= moment)
    }
}

fn locked(moments: &Mutex<Vec<Timestamp>>) -> std::sync::MutexGuard<'_, Vec<Timestamp>> {
    moments.lock().unwrap_or_else(PoisonError::into_inner)
}
