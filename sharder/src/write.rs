//! A write on a view of an object. It is decided again when the view is old.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
    core::{Request, Status},
};
use ringside_ring::{RingLabels, patch};

use crate::{
    api_error::UNDONE,
    index::Mark,
    resources::{Object, Resource},
    target::Target,
    writes::{Kept, Writes},
};
use ringside_runtime::explain::{code, explain};

/// How often a write is decided before it is left for later. Another client works on an object that changes this often
/// meanwhile. Waiting a moment is kinder than trying harder.
const ATTEMPTS: usize = 5;

/// How a write ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It was carried out.
    Written {
        /// The view of the object that it was decided on.
        on: Box<Target>,
    },
    /// There is nothing to write any more: this is how the object is.
    Needless(Box<Target>),
    /// The object is gone.
    Gone,
}

impl Outcome {
    /// Whether something was written.
    pub(crate) const fn wrote(&self) -> bool {
        matches!(self, Self::Written { .. })
    }
}

/// Writes what `decide` says about the object of `resource`, which was last seen as `target`.
///
/// Every patch changes whose the object is. An answer that shows no change, or no shard where one was to be, is that of an
/// admission policy or a webhook which takes it back in the same write: that is an error ([`is_undone`]), as the object is not
/// where the write was to bring it.
///
/// A conversion that hides labels costs an object all that it has, by any write in that version. So until a write of a resource
/// that may be converted was seen to keep its labels, each is carried out as a dry run first.
///
/// A patch tests what it was decided on. When such a test fails (422), or the object is written by others
/// all the time (409), it is read again; one of another uid is another object. An object that is unchanged by then was refused
/// for another reason, and would be again. One that changed at each attempt is no refusal, but a conflict (409).
pub(crate) async fn write(
    writes: &Writes,
    (client, resource): (&Client, &Resource),
    labels: &RingLabels,
    mut target: Target,
    decide: impl Fn(&Target) -> Option<json_patch::Patch>,
) -> Result<Outcome, kube::Error> {
    let version = resource.api();
    let api = resource.objects_as(&version, client, target.namespace.as_deref());
    let (mut attempt, mut tried) = (1, false);
    loop {
        let Some(patch) = decide(&target) else { return Ok(Outcome::Needless(Box::new(target))) };
        let dry_run = !tried && resource.may_be_converted() && writes.kept(resource) != Some(Kept::Yes);
        let leaves_shard = patch::leaves_shard(labels, &patch, &target.ownership());
        let sent = send(writes, (&api, resource), &target, patch, dry_run).await;
        let error = match resource.answered(&version, sent) {
            Ok(written) => {
                let now = labels.ownership(written.metadata.labels.as_ref());
                if now == target.ownership() || (now.shard.is_none() && leaves_shard) {
                    return Err(undone(writes, client, resource).await);
                }
                if dry_run {
                    writes.note(resource, Kept::Yes);
                    tried = true;
                    continue;
                }
                return Ok(Outcome::Written { on: Box::new(target) });
            }
            // A webhook with side effects refuses every dry run, and others may: the write itself must show it.
            Err(error) if dry_run && matches!(code(&error), Some(400 | 403)) => {
                tried = true;
                continue;
            }
            Err(error) => error,
        };
        let is_invalid = match code(&error) {
            Some(404) => return Ok(gone(writes, resource, &target)),
            Some(422) => true,
            Some(409) if attempt < ATTEMPTS => false,
            _ => return Err(error),
        };
        match api.get_opt(&target.name).await? {
            Some(object) if object.metadata.uid.as_deref() == Some(&target.uid) => {
                if let Some(answers) = writes.answers() {
                    answers.shown(resource, &object, None);
                }
                let now = Target::of(&object.metadata, labels);
                if is_invalid && now == target {
                    return Err(error);
                }
                if attempt == ATTEMPTS {
                    return Err(changes_always(&error));
                }
                (target, attempt) = (now, attempt + 1);
            }
            _ => return Ok(gone(writes, resource, &target)),
        }
    }
}

/// Sends a patch of an object, under the hold that it needs, and takes in what the answer shows.
async fn send(
    writes: &Writes,
    (api, resource): (&Api<Object>, &Resource),
    target: &Target,
    patch: json_patch::Patch,
    dry_run: bool,
) -> Result<Object, kube::Error> {
    let (to, name, hold) = (api.clone(), target.name.clone(), writes.hold().cloned());
    let parameters = PatchParams { dry_run, ..PatchParams::default() };
    let began = Mark::now();
    let patched = async move {
        let patch = Patch::<()>::Json(patch);
        match hold {
            Some(hold) => {
                hold.carry_out(async |within| patch_within(within, &to, &name, &parameters, &patch).await).await
            }
            None => to.patch(&name, &parameters, &patch).await,
        }
    };
    let written = writes.carry_out(&resource.id, patched).await?;
    if let Some(answers) = writes.answers().filter(|_| !dry_run) {
        // One that was taken back shows nothing new.
        let is_new = written.metadata.resource_version.as_ref() != Some(&target.resource_version);
        answers.shown(resource, &written, is_new.then_some(began));
    }
    Ok(written)
}

fn gone(writes: &Writes, resource: &Resource, target: &Target) -> Outcome {
    if let Some(answers) = writes.answers() {
        answers.gone(resource, &target.uid);
    }
    Outcome::Gone
}

/// The error of a write to an object that others write to in between, each time.
fn changes_always(last: &kube::Error) -> kube::Error {
    conflict(&format!("the object changed at each of {ATTEMPTS} attempts; the last answer: {}", explain(last)))
}

/// The error of a write that met another state, and may be decided again in a moment.
pub(crate) fn conflict(why: &str) -> kube::Error {
    kube::Error::Api(Status::failure(why, "Conflict").with_code(409).boxed())
}

/// The API server carries it out within this time, or gives up.
async fn patch_within(
    within: Duration,
    api: &Api<Object>,
    name: &str,
    parameters: &PatchParams,
    patch: &Patch<()>,
) -> Result<Object, kube::Error> {
    let request = Request::new(api.resource_url()).patch_metadata(name, parameters, patch);
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    let (uri, within) = (request.uri(), within.as_millis());
    let separator = if uri.query().is_some() { '&' } else { '?' };
    let bounded = format!("{uri}{separator}timeout={within}ms").parse().map_err(http::Error::from);
    *request.uri_mut() = bounded.map_err(kube::Error::HttpError)?;
    api.clone().into_client().request(request).await
}

/// The error of a write that was accepted and does not show: to the sharder a refusal, which may pass.
async fn undone(writes: &Writes, client: &Client, resource: &Resource) -> kube::Error {
    let why = match writes.kept(resource) {
        Some(Kept::No(known)) => known,
        _ => {
            let who = match stored_version(client, resource).await {
                Some(stored) => format!(
                    "does the conversion webhook of CustomResourceDefinition '{}.{}' lose labels between version '{}' and version '{stored}', which is stored?",
                    resource.id.resource,
                    resource.id.group,
                    resource.api().version
                ),
                None => "is an admission policy or a webhook taking it back?".to_owned(),
            };
            let why = format!("the answer to a write of the ring's labels does not show it: {who}");
            writes.note(resource, Kept::No(why.clone()));
            why
        }
    };
    // What it answered, and what came of it.
    kube::Error::Api(Status::failure(&why, UNDONE).with_code(200).boxed())
}

/// Returns the version from which a webhook converts what is read of `resource`, if one does.
async fn stored_version(client: &Client, resource: &Resource) -> Option<String> {
    if !resource.may_be_converted() {
        return None;
    }
    let name = format!("{}.{}", resource.id.resource, resource.id.group);
    let which = ListParams::default().fields(&format!("metadata.name={name}"));
    // The sharder may list definitions, not get each. Where it may not, the sentence names no conversion.
    let found = Api::<CustomResourceDefinition>::all(client.clone()).list(&which).await.ok()?;
    let spec = found.items.into_iter().find(|found| found.metadata.name.as_ref() == Some(&name))?.spec;
    let converts = spec.conversion.is_some_and(|conversion| conversion.strategy == "Webhook");
    let stored = spec.versions.into_iter().find(|version| version.storage)?.name;
    (converts && stored != resource.api().version).then_some(stored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Method, StatusCode};
    use serde_json::{Value, json};

    use super::*;
    use crate::api_error::is_undone;
    use crate::{fixtures::FakeApi, snapshot::tests::resource};

    const PATH: &str = "/apis/x.example/v1/namespaces/default/things/o";
    const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.x.example";

    /// A custom resource that a webhook converts to the version that is read, and an object with a label of its user's.
    fn api() -> FakeApi {
        let api = FakeApi::default();
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage});
        api.put(
            DEFINITION,
            json!({"metadata": {"name": "things.x.example"}, "spec": {"group": "x.example", "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things"}, "conversion": {"strategy": "Webhook"},
                "versions": [version("v1", false), version("v0", true)]}}),
        );
        let metadata =
            json!({"namespace": "default", "name": "o", "uid": "u", "resourceVersion": "7", "labels": {"app": "x"}});
        api.put(PATH, json!({ "metadata": metadata }));
        api
    }

    /// Assigns the object to shard `a`, as it is seen without labels or with those of its user.
    async fn assigned(api: &FakeApi, writes: &Writes, has_labels: bool) -> Result<Outcome, kube::Error> {
        let labels = RingLabels::of(&"example".parse().unwrap());
        let thing = resource("x.example", "Thing", "things");
        let seen = Target {
            uid: "u".into(),
            resource_version: api.get(PATH).unwrap()["metadata"]["resourceVersion"].as_str().unwrap().into(),
            namespace: Some("default".into()),
            name: "o".into(),
            has_labels,
            ..Target::default()
        };
        let to = "a".parse().unwrap();
        write(writes, (&api.client(), &thing), &labels, seen, |target| {
            target.shard.is_none().then(|| patch::assign(&labels, &target.seen(), &to))
        })
        .await
    }

    fn user_label(api: &FakeApi) -> Value {
        api.get(PATH).unwrap()["metadata"]["labels"]["app"].clone()
    }

    /// Of each write, whether it was a dry run.
    fn dry_runs(api: &FakeApi) -> Vec<bool> {
        let writes = api.asked().into_iter().filter(|asked| asked.method == Method::PATCH);
        writes.map(|asked| asked.query.contains("dryRun=All")).collect()
    }

    #[tokio::test]
    async fn a_conversion_that_hides_labels_costs_no_object_its_own() {
        let (api, writes) = (api(), Writes::default());
        api.hide_labels(true);
        for _ in 0..2 {
            let error = assigned(&api, &writes, false).await.unwrap_err();
            assert!(is_undone(&error));
            let told = error.to_string();
            for part in ["conversion webhook", "'things.x.example'", "'v1'", "'v0'"] {
                assert!(told.contains(part), "{told}");
            }
        }
        assert_eq!(user_label(&api), "x");
        assert_eq!(dry_runs(&api), [true, true]);
        let definitions = api.asked().iter().filter(|asked| asked.path.contains("customresourcedefinitions")).count();
        assert_eq!(definitions, 1, "it is looked up once");
        api.hide_labels(false);
        assert!(matches!(assigned(&api, &writes, true).await, Ok(Outcome::Written { .. })), "it was mended");
    }

    #[tokio::test]
    async fn only_the_first_write_of_a_custom_resource_is_tried_before_it_is_carried_out() {
        let (api, writes) = (api(), Writes::default());
        for _ in 0..2 {
            assert!(matches!(assigned(&api, &writes, true).await, Ok(Outcome::Written { .. })));
        }
        assert_eq!((dry_runs(&api), user_label(&api)), (vec![true, false, false], json!("x")));
    }

    #[tokio::test]
    async fn a_webhook_that_refuses_dry_runs_refuses_no_write() {
        let (api, writes) = (api(), Writes::default());
        api.intercept(|asked, _| asked.query.contains("dryRun=All").then_some(StatusCode::BAD_REQUEST));
        assert!(matches!(assigned(&api, &writes, true).await, Ok(Outcome::Written { .. })));
        assert_eq!(dry_runs(&api), [true, false]);
    }

    #[tokio::test]
    async fn a_write_that_is_refused_for_what_the_object_is_costs_one_write_and_one_read() {
        let (api, writes) = (api(), Writes::default());
        api.intercept(|asked, _| (asked.method == Method::PATCH).then_some(StatusCode::UNPROCESSABLE_ENTITY));
        let error = assigned(&api, &writes, true).await.unwrap_err();
        assert_eq!((code(&error), api.asked().len()), (Some(422), 2));
    }
}
