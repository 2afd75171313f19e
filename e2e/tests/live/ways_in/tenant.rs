//! Another account's token, through the proxy: what it may, of what is the shard's, and no more.

use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenRequest},
    core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_e2e::{eventually::eventually, manifests, system::System, website::Website};
use serde_json::json;

use super::{DEADLINE, OBJECTS, owned};

const SETTING: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant, namespace: ways-in}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: ways-in}
rules: [{apiGroups: [web.example.com], resources: [websites], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: ways-in}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: tenant, namespace: ways-in}]
";

/// The code of a refusal.
fn code<T>(result: kube::Result<T>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn another_accounts_token_does_what_that_account_may(system: &System) {
    let admin = system.control_plane().client();
    manifests::apply(&admin, &manifests::parse(SETTING).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), system.namespace());
    let asked = TokenRequest::default();
    let answer = accounts.create_token_request("tenant", &PostParams::default(), &asked).await.unwrap();
    let shard = system.shards().next().unwrap();
    let mut config = Kubeconfig::read_from(shard.kubeconfig()).unwrap();
    config.auth_infos[0].auth_info.as_mut().unwrap().token = Some(answer.status.unwrap().token.into());
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let tenant = Client::try_from(config).unwrap();

    let names = async |client: &Client, parameters: &ListParams| {
        let websites: Api<Website> = Api::namespaced(client.clone(), system.namespace());
        let mut names: Vec<_> = websites.list(parameters).await?.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok::<_, kube::Error>(names)
    };
    let (all, ours) = (ListParams::default(), ListParams::default().labels(&owned(system)));
    let seen = eventually("its role counts", DEADLINE, || async {
        names(&tenant, &all).await.map_err(|error| error.to_string())
    });
    let (seen, ours, all) =
        (seen.await.unwrap(), names(&admin, &ours).await.unwrap(), names(&admin, &all).await.unwrap());
    assert_eq!(seen, ours);
    assert!(ours.len() < OBJECTS && !ours.is_empty());
    // What the pod may, and this account may not.
    let websites: Api<Website> = Api::namespaced(tenant.clone(), system.namespace());
    let other = all.iter().find(|name| !ours.contains(name)).unwrap();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"tenant": "was-here"}}}));
    assert_eq!(code(websites.patch(&ours[0], &PatchParams::default(), &patch).await), 403);
    assert_eq!(code(websites.patch(other, &PatchParams::default(), &patch).await), 409);
    assert_eq!((code(websites.get(&ours[0]).await), code(websites.get(other).await)), (200, 404));
    let secrets: Api<Secret> = Api::namespaced(tenant.clone(), system.namespace());
    assert_eq!(code(secrets.list(&ListParams::default()).await), 403);
    let review = Api::<SelfSubjectReview>::all(tenant);
    let review = review.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap().username;
    assert_eq!(user.as_deref(), Some("system:serviceaccount:ways-in:tenant"));
}
