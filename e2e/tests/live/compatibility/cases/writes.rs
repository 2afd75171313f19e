//! Writes in every form, to objects and their subresources.

use std::collections::BTreeSet;

use super::*;

/// A write: to which collection, to what of it, and how.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) behaviour: &'static str,
    pub(super) form: &'static str,
    pub(super) kind: Kind,
    /// Behind the object's path; for creations it is the collection's.
    pub(super) target: &'static str,
    pub(super) method: Method,
    pub(super) content_type: &'static str,
    pub(super) body: String,
    /// What is compared of the answers.
    pub(super) bodies: Bodies,
    /// What becomes of it without the proxy.
    pub(super) expected: Expected,
    /// Whether there is no object before it.
    pub(super) absent: bool,
}

impl Write {
    /// The same, where the answer says more that is another's each time.
    fn but(self, paths: &'static [&'static str]) -> Self {
        Self { bodies: Bodies::But(paths), ..self }
    }

    /// The same, where the API server refuses it.
    pub(super) fn refused(self, status: StatusCode) -> Self {
        Self { expected: Expected::Status(status), ..self }
    }

    /// The same, where there is no object.
    fn absent(self) -> Self {
        Self { absent: true, ..self }
    }

    /// The request, where the object has this name and version.
    pub(super) fn ask(&self, collection: &str, name: &str, version: &str) -> Ask {
        let target = match self.target.strip_prefix("..") {
            Some(query) => format!("{collection}{query}"),
            None => format!("{collection}/{name}{}", self.target),
        };
        let ask = Ask::new(self.method.clone(), target);
        if self.body.is_empty() { ask } else { ask.body(self.content_type, self.body.replace(CURRENT, version)) }
    }
}

/// What says whose an object is.
pub(super) type Labels = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Website,
    ConfigMap,
    Deployment,
    /// Of the ring as what Deployments control.
    ReplicaSet,
}

impl Kind {
    pub(super) fn collection(self, namespace: &str) -> String {
        match self {
            Self::Website => format!("/apis/web.example.com/v1/namespaces/{namespace}/websites"),
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::Deployment => format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            Self::ReplicaSet => format!("/apis/apps/v1/namespaces/{namespace}/replicasets"),
        }
    }

    /// An object named `thing`, with these labels beside its own.
    pub(super) fn object(self, owner: &Labels) -> Value {
        let mut metadata = json!({"name": "thing", "labels": owner});
        metadata["labels"]["app"] = "thing".into();
        let pod = json!({"metadata": {"labels": {"app": "thing"}}, "spec": {"containers": [
            {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"},
        ]}});
        match self {
            Self::Website => {
                json!({"apiVersion": "web.example.com/v1", "kind": "Website", "metadata": metadata, "spec": {"content": "old"}})
            }
            Self::ConfigMap => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "old", "more": "old"}})
            }
            Self::Deployment | Self::ReplicaSet => json!({
                "apiVersion": "apps/v1", "kind": format!("{self:?}"), "metadata": metadata,
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "thing"}}, "template": pod},
            }),
        }
    }
}

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// Stands in a body for the resourceVersion of what is there: of custom resources, and of others too, an update that
/// names none is refused.
pub(super) const CURRENT: &str = "CURRENT";

/// What it says of the object that is gone.
const OF_A_DELETE: &[&str] = &["details.uid"];

/// A write that is done, where there is an object.
pub(crate) fn write(
    behaviour: &'static str,
    form: &'static str,
    kind: Kind,
    method: Method,
    target: &'static str,
    content_type: &'static str,
    body: &str,
) -> Write {
    let (body, bodies, expected) = (body.to_owned(), OF_A_WRITE, Expected::Done);
    Write { behaviour, form, kind, target, method, content_type, body, bodies, expected, absent: false }
}

const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"thing"},"data":{"text":"new"}}"#;
const CONFIG_MAP_YAML: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: thing}\ndata: {text: new}\n";

#[rustfmt::skip]
fn writes() -> Vec<Write> {
    use Kind::{ConfigMap, Deployment, Website};
    let website = r#"{"apiVersion":"web.example.com/v1","kind":"Website","metadata":{"name":"thing","resourceVersion":"CURRENT"},"spec":{"content":"new"}}"#;
    let created = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"made-"},"data":{"text":"new"}}"#;
    vec![
        write("update", "custom resource", Website, Method::PUT, "", JSON, website),
        write("update", "built-in resource", ConfigMap, Method::PUT, "", JSON, CONFIG_MAP),
        write("update", "YAML", ConfigMap, Method::PUT, "", "application/yaml", CONFIG_MAP_YAML),
        write("merge patch", "built-in resource", ConfigMap, Method::PATCH, "", MERGE, r#"{"data":{"text":"new","more":null}}"#),
        write("JSON patch", "custom resource", Website, Method::PATCH, "", JSON_PATCH,
            r#"[{"op":"test","path":"/spec/content","value":"old"},{"op":"replace","path":"/spec/content","value":"new"}]"#),
        write("JSON patch whose test fails", "built-in resource", ConfigMap, Method::PATCH, "", JSON_PATCH,
            r#"[{"op":"test","path":"/data/more","value":"new"}]"#)
            .refused(StatusCode::UNPROCESSABLE_ENTITY),
        write("strategic merge patch", "built-in resource", Deployment, Method::PATCH, "", STRATEGIC,
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:2"}]}}}}"#),
        write("server-side apply", "built-in resource", ConfigMap, Method::PATCH, "?fieldManager=me&force=true", APPLY, CONFIG_MAP_YAML),
        write("server-side apply with a conflict", "built-in resource", ConfigMap, Method::PATCH, "?fieldManager=me", APPLY, CONFIG_MAP_YAML)
            .refused(StatusCode::CONFLICT),
        write("status", "update", Website, Method::PUT, "/status", JSON,
            r#"{"apiVersion":"web.example.com/v1","kind":"Website","metadata":{"name":"thing","resourceVersion":"CURRENT"},"status":{"reconciledBy":"me"}}"#),
        write("scale", "update", Deployment, Method::PUT, "/scale", JSON,
            r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"thing"},"spec":{"replicas":3}}"#),
        write("dry run", "update", ConfigMap, Method::PUT, "?dryRun=All", JSON, CONFIG_MAP),
        write("delete", "without options", ConfigMap, Method::DELETE, "", "", "").but(OF_A_DELETE),
        write("delete", "with a precondition that fails", Website, Method::DELETE, "", JSON,
            r#"{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"1"}}"#).but(&["message"])
            .refused(StatusCode::CONFLICT),
        write("unknown field", "with a warning", Website, Method::PATCH, "?fieldValidation=Warn", MERGE, r#"{"spec":{"unknown":"x"}}"#),
        write("unknown field", "refused", ConfigMap, Method::PUT, "?fieldValidation=Strict", JSON,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"thing"},"unknown":1}"#)
            .refused(StatusCode::BAD_REQUEST),
        write("create", "JSON", Website, Method::POST, "..", JSON, &website.replace(r#","resourceVersion":"CURRENT""#, "")).absent(),
        write("create", "that exists", ConfigMap, Method::POST, "..", JSON, CONFIG_MAP)
            .refused(StatusCode::CONFLICT),
        write("create", "with a name made up by the API server, dry run", ConfigMap, Method::POST, "..?dryRun=All", JSON, created)
            .but(&["metadata.name", "metadata.uid", "metadata.creationTimestamp", "metadata.managedFields[].time"]),
        write("write of what is not there", "server-side apply, which makes it", ConfigMap, Method::PATCH, "?fieldManager=me", APPLY, CONFIG_MAP_YAML)
            .absent(),
        write("write of what is not there", "update", ConfigMap, Method::PUT, "", JSON, CONFIG_MAP).absent()
            .refused(StatusCode::NOT_FOUND),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut behaviours = BTreeSet::new();
    for (place, write) in writes().into_iter().enumerate() {
        let (behaviour, form) = (write.behaviour, write.form);
        let case = case(behaviour, form, async move |probe| both(&probe, &format!("write-{place}"), &write).await);
        cases.push(if behaviours.insert(behaviour) { case } else { case.variant() });
    }
    let protobuf = case("update", "protobuf", async |probe| unchanged(&probe, &format!("{MAPS}/own-1")).await);
    cases.push(protobuf.variant());
    cases
}

/// Each way finds an object of the shard, then one without owner, or none.
pub(super) async fn both(probe: &Probe, namespace: &str, write: &Write) -> Result<Outcome> {
    probe.fixture.namespace(namespace).await?;
    let owners = [probe.shard.labels(), Labels::new()];
    both_to(probe, &write.kind.collection(namespace), &owners.map(|owner| write.kind.object(&owner)), write).await
}

/// Each way finds what was there before, of these one after the other.
pub(super) async fn both_to(probe: &Probe, collection: &str, objects: &[Value], write: &Write) -> Result<Outcome> {
    for object in objects {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let ask = async || {
            let version = match write.absent {
                true => probe.fixture.gone(collection, name).await.map(|()| String::new())?,
                false => probe.fixture.anew(collection, object).await?,
            };
            anyhow::Ok(write.ask(collection, name, &version))
        };
        let direct = probe.past(&ask().await?).await?;
        write.expected.check(&direct)?;
        let (proxied, _) = probe.through(&ask().await?, AS_SENT).await?;
        answers(&direct, &proxied, write.bodies)?;
    }
    Ok(Outcome::Same)
}

/// A reference to the Deployment at this path.
pub(super) async fn owner(probe: &Probe, path: &str) -> Result<Value> {
    let made = probe.fixture.admin(&Ask::get(path)).await?;
    let uid = made["metadata"]["uid"].as_str().context("a uid")?;
    Ok(json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "thing", "uid": uid, "controller": true}))
}

/// An object as the API server itself wrote it, sent back: a write that changes nothing, so both answers are equal in
/// every byte.
pub(super) async fn unchanged(probe: &Probe, target: &str) -> Result<Outcome> {
    let object = probe.past(&Ask::get(target).accept(PROTOBUF)).await?;
    let ask = Ask::new(Method::PUT, target).accept(PROTOBUF).body(PROTOBUF, object.body.clone());
    let outcome = probe.same(&ask).await?;
    ensure!(probe.past(&ask).await?.body == object.body, "the write changed something");
    Ok(outcome)
}
