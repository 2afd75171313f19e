//! Who this shard is: the pod that the API server knows us as, else a flag, else the hostname.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams};
use ringside_ring::{ShardName, name::InvalidName};

use ringside_runtime::explain::causes;

/// What the API server puts into `extra` for a token that is bound to a pod.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// How long to wait before asking an absent API server again.
const RETRY: Duration = Duration::from_secs(2);

/// The shard that this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub shard: ShardName,
    /// The pod's uid, where known: a pod made again under the same name is another shard.
    pub pod_uid: Option<String>,
}

/// Why it is not clear who we are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Two sources say different things.
    #[error(
        "--shard-name says '{flag}' but the service account's token belongs to pod '{pod}': leave the flag out, or use the pod's own token"
    )]
    Contradiction {
        /// The flag.
        flag: ShardName,
        /// The pod in the token.
        pod: String,
    },
    /// The name can't be one of a shard.
    #[error("{source} (it was taken from {from})")]
    Name {
        /// Where the name came from.
        from: &'static str,
        /// What is wrong with it.
        #[source]
        source: InvalidName,
    },
    /// No source says anything.
    #[error("the shard has no name: the token belongs to no pod and the hostname is unknown; set --shard-name")]
    Unknown,
}

/// The pod that a token belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenPod {
    name: String,
    uid: Option<String>,
}

impl TokenPod {
    fn of(review: SelfSubjectReview) -> Option<Self> {
        let mut extra: BTreeMap<String, Vec<String>> = review.status?.user_info?.extra?;
        let mut first = |key| extra.remove(key).and_then(|values| values.into_iter().next());
        Some(Self { name: first(POD_NAME)?, uid: first(POD_UID) })
    }
}

/// Decides, from all sources.
///
/// # Errors
/// When they contradict each other, or name nobody who can be a shard.
pub fn decide(
    pod: Option<TokenPod>,
    flag: Option<&ShardName>,
    hostname: Option<&str>,
) -> Result<Identity, IdentityError> {
    let parse = |name: &str, from| name.parse().map_err(|source| IdentityError::Name { from, source });
    match (pod, flag) {
        (Some(pod), Some(flag)) if pod.name != flag.as_str() => {
            Err(IdentityError::Contradiction { flag: flag.clone(), pod: pod.name })
        }
        (Some(pod), _) => Ok(Identity { shard: parse(&pod.name, "the pod's name")?, pod_uid: pod.uid }),
        (None, Some(flag)) => Ok(Identity { shard: flag.clone(), pod_uid: None }),
        (None, None) => {
            let hostname = hostname.ok_or(IdentityError::Unknown)?;
            Ok(Identity { shard: parse(hostname, "the hostname")?, pod_uid: None })
        }
    }
}

/// Asks the API server whose token we have, for as long as it takes to get an answer.
pub async fn ask(client: &Client) -> Option<TokenPod> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    loop {
        match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
            Ok(review) => return TokenPod::of(review),
            // Servers before 1.28 don't have the API, and a cluster may forbid it: both are answers.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                tracing::warn!(%status, "the API server does not say which pod this is; using --shard-name or the hostname");
                return None;
            }
            Err(error) => {
                tracing::warn!(error = causes(&error), "can't ask the API server who we are yet; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::authentication::v1::{SelfSubjectReviewStatus, UserInfo};

    use super::*;

    fn pod(name: &str) -> TokenPod {
        TokenPod { name: name.into(), uid: Some("u1".into()) }
    }

    #[test]
    fn the_pod_of_the_token_comes_first_and_nothing_may_contradict_it() {
        let (a, b): (ShardName, ShardName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let of_pod = Identity { shard: a.clone(), pod_uid: Some("u1".into()) };
        assert_eq!(decide(Some(pod("a")), None, Some("node-1")), Ok(of_pod.clone()));
        assert_eq!(decide(Some(pod("a")), Some(&a), Some("node-1")), Ok(of_pod));
        let error = decide(Some(pod("a")), Some(&b), None).unwrap_err();
        assert!(error.to_string().contains("--shard-name says 'b'") && error.to_string().contains("pod 'a'"));
        assert_eq!(decide(None, Some(&b), Some("node-1")), Ok(Identity { shard: b, pod_uid: None }));
        assert_eq!(decide(None, None, Some("host")).unwrap().shard.as_str(), "host");
        assert_eq!(decide(None, None, None), Err(IdentityError::Unknown));
    }

    #[test]
    fn a_pod_name_over_63_characters_is_refused_with_the_reason() {
        let error = decide(Some(pod(&"a".repeat(64))), None, None).unwrap_err().to_string();
        assert!(error.contains("63 at most") && error.contains("the pod's name"), "{error}");
    }

    #[test]
    fn the_pod_is_read_from_the_review() {
        let extra =
            BTreeMap::from([(POD_NAME.to_owned(), vec!["a".to_owned()]), (POD_UID.to_owned(), vec!["u1".to_owned()])]);
        let with = |extra| SelfSubjectReview {
            status: Some(SelfSubjectReviewStatus { user_info: Some(UserInfo { extra, ..UserInfo::default() }) }),
            ..SelfSubjectReview::default()
        };
        assert_eq!(TokenPod::of(with(Some(extra))), Some(pod("a")));
        assert_eq!(TokenPod::of(with(None)), None);
    }
}
