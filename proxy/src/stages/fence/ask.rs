//! Requests of our own to the API server: whose an object is at this moment, and that the webhook looks at one again.
//!
//! The question is a list of one name, which needs no permission that a shard does not have for its watches, and which the API
//! server answers from etcd as it does a get. The proxy asks as itself, whomever the client impersonates.

use std::{collections::HashSet, fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use super::write::heed;
use crate::{
    body::{Body, empty, full},
    budget::Budget,
    fence::{Target, WriteGuard},
    metadata::{self, Metadata, Owner},
    metrics::Metrics,
    request::{Query, representation::JSON},
    stages::{OwnRequests, as_client::METADATA},
    status::{Named, Refusal},
};

/// The longest answer that is read: one object, of which etcd keeps 1.5 MiB at most by default, where the API server of a
/// resource does not know how to send its metadata alone; or the resources of one group.
const MAX_ANSWER: usize = 8 << 20;
/// How long an answer may take: a client waits for its own meanwhile.
const ANSWER: Duration = Duration::from_secs(10);

/// How many objects are asked for at once: of metadata alone, even of some tens of kilobytes each, less than is read.
const PAGE: &str = "100";

const ONE_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// RFC 7386.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// RFC 6902.
pub(super) const JSON_PATCH: &str = "application/json-patch+json";

/// Who asks. Cheap to clone.
#[derive(Clone)]
pub(super) struct ApiQuestions {
    send: OwnRequests,
    pub(super) metrics: Metrics,
    pub(super) budget: Budget,
}

/// What the API server has under a name.
pub(super) enum Found {
    There(Metadata),
    Absent,
    /// It does not know the resource in that version: a list of what is not there is empty.
    NotServed,
}

/// Why there is no answer.
pub(super) struct QuestionError {
    why: String,
    forbidden: bool,
}

impl QuestionError {
    /// It may pass.
    pub(super) fn passing(why: &dyn fmt::Display) -> Self {
        Self { why: why.to_string(), forbidden: false }
    }

    /// In words.
    pub(super) fn why(&self) -> &str {
        &self.why
    }

    /// Whether the question fails until a user grants the permission.
    pub(super) fn is_forbidden(&self) -> bool {
        self.forbidden
    }

    /// As the answer to a request that concerns this object.
    pub(super) fn about(self, target: &Target) -> Refusal {
        let Self { why, forbidden } = self;
        Refusal::Unverified { object: Box::new(named(target)), why, forbidden }
    }
}

/// As a `Status` names it.
pub(super) fn named(target: &Target) -> Named {
    Named { resource: target.resource.clone(), name: target.name.clone().unwrap_or_default() }
}

impl ApiQuestions {
    /// By these requests.
    pub(super) fn new(send: OwnRequests, metrics: Metrics) -> Self {
        Self { send, metrics, budget: Budget::default() }
    }

    /// Answers draw from this budget, which is that of who makes it ask.
    pub(super) fn drawing(&self, budget: Budget) -> Self {
        Self { budget, ..self.clone() }
    }

    /// The metadata of the object as it is now, if there is one.
    pub(super) async fn metadata(&self, target: &Target, version: &str) -> Result<Option<Metadata>, QuestionError> {
        match self.find(target, version).await? {
            Found::There(metadata) => Ok(Some(metadata)),
            Found::Absent | Found::NotServed => Ok(None),
        }
    }

    /// Finds an object by its name, as it is now.
    pub(super) async fn find(&self, target: &Target, version: &str) -> Result<Found, QuestionError> {
        self.metrics.asked();
        let name = target.name.as_deref().unwrap_or_default();
        let Some(answer) = self.get(&list(target, version, name), METADATA).await? else {
            return Ok(Found::NotServed);
        };
        let found = metadata::of_list(&answer).map_err(|error| QuestionError::passing(&error))?;
        let found = found.items.into_iter().find(|it| it.name.as_deref() == Some(name));
        Ok(found.map_or(Found::Absent, Found::There))
    }

    /// Lists the owners that may count of all objects that a query selects, each once, of those that are `wanted`. None where there are
    /// more than `most`.
    pub(super) async fn owners(
        &self,
        (target, version): (&Target, &str),
        mut query: Query,
        wanted: impl Fn(&Owner) -> bool,
        most: usize,
    ) -> Result<Option<Vec<Owner>>, QuestionError> {
        let (mut owners, mut uids) = (Vec::new(), HashSet::new());
        query.set("limit", PAGE);
        loop {
            self.metrics.asked();
            let path = format!("{}?{query}", collection(target, version));
            let Some(answer) = self.get(&path, METADATA).await? else { return Ok(Some(owners)) };
            let page = metadata::of_list(&answer).map_err(|error| QuestionError::passing(&error))?;
            let found = page.items.iter().flat_map(Metadata::owners).filter(|owner| wanted(owner));
            owners.extend(found.filter(|owner| uids.insert(owner.uid.clone())).cloned());
            if owners.len() > most {
                return Ok(None);
            }
            let Some(next) = page.next else { return Ok(Some(owners)) };
            query.set("continue", &next);
        }
    }

    /// What a path shows in JSON, unless there is nothing.
    pub(super) async fn json(&self, path: &str) -> Result<Option<Bytes>, QuestionError> {
        self.get(path, JSON).await
    }

    /// Patches the object with this uid by what changes nothing, so that admission looks at it.
    pub(super) async fn touch(
        &self,
        (target, uid): (&Target, &str),
        version: &str,
        write_guard: &WriteGuard,
    ) -> Result<Option<Metadata>, QuestionError> {
        // Of an object with another uid it is refused.
        let patch = serde_json::json!({"metadata": {"uid": uid}}).to_string();
        self.patch(target, version, ("ringside-proxy", MERGE_PATCH, patch), write_guard).await
    }

    /// Patches an object as this field manager; returns its metadata after that, if it is still there. The patch is under way
    /// as long as the guard.
    pub(super) async fn patch(
        &self,
        target: &Target,
        version: &str,
        (manager, form, patch): (&str, &'static str, String),
        write_guard: &WriteGuard,
    ) -> Result<Option<Metadata>, QuestionError> {
        let name = target.name.as_deref().unwrap_or_default();
        let path = format!("{}/{}?fieldManager={manager}", collection(target, version), segment(name));
        let mut request = request(&path, ONE_METADATA)?.map(|_| full(patch));
        *request.method_mut() = Method::PATCH;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
        write_guard.sent();
        let heed = |answered: &_| heed(answered, write_guard, false);
        let Some(answer) = self.exchange(request, "patch", heed).await? else { return Ok(None) };
        metadata::of_object(&answer).map(Some).map_err(|error| QuestionError::passing(&error))
    }

    async fn get(&self, path: &str, accept: &'static str) -> Result<Option<Bytes>, QuestionError> {
        self.exchange(request(path, accept)?, "list", |_| {}).await
    }

    /// What is answered, unless there is no such object; `seen` is told of it as soon as it begins.
    async fn exchange(
        &self,
        request: Request<Body>,
        verb: &str,
        seen: impl FnOnce(&Result<Response<Body>, Refusal>),
    ) -> Result<Option<Bytes>, QuestionError> {
        let answered = async {
            let answered = (self.send)(request).await;
            seen(&answered);
            let (head, body) = answered.map_err(|error| QuestionError::passing(&error))?.into_parts();
            let body = self.budget.collect(body, MAX_ANSWER).await.map_err(|error| QuestionError::passing(&error))?;
            match head.status {
                StatusCode::OK => Ok(Some(body)),
                StatusCode::NOT_FOUND => Ok(None),
                // As the API server says of a precondition; of a version it says otherwise.
                StatusCode::CONFLICT if text(&body).contains("UID in precondition") => Ok(None),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(QuestionError {
                    why: format!("allow the pod's service account to {verb} the resource: {}", text(&body)),
                    forbidden: true,
                }),
                status => Err(QuestionError::passing(&format!("the API server answered {status}: {}", text(&body)))),
            }
        };
        let late = |_| QuestionError::passing(&format!("no answer from the API server within {ANSWER:?}"));
        timeout(ANSWER, answered).await.map_err(late)?
    }
}

fn request(path: &str, accept: &'static str) -> Result<Request<Body>, QuestionError> {
    let mut request = Request::new(empty());
    *request.uri_mut() = path.parse().map_err(|error| QuestionError::passing(&error))?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
    Ok(request)
}

fn segment(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn collection(target: &Target, version: &str) -> String {
    let mut path = if target.resource.group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{}/{version}", target.resource.group)
    };
    if let Some(namespace) = &target.namespace {
        path += &format!("/namespaces/{}", segment(namespace));
    }
    format!("{path}/{}", target.resource.resource)
}

/// The list of one name.
fn list(target: &Target, version: &str, name: &str) -> String {
    // As `fields.EscapeValue` of k8s.io/apimachinery; a name may be a word like `system:node`, or worse.
    let escape = |it: char| matches!(it, '\\' | ',' | '=').then_some('\\').into_iter().chain([it]);
    let value: String = name.chars().flat_map(escape).collect();
    format!("{}?fieldSelector={}", collection(target, version), segment(&format!("metadata.name={value}")))
}

/// The message of a `Status`, or the beginning of whatever it is.
fn text(body: &Bytes) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = status.as_ref().and_then(|it| it["message"].as_str()).map(str::to_owned);
    message.unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned())
}
