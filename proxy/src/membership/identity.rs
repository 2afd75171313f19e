//! Who this shard is: the pod that the API server knows us as, else a flag, else the hostname.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams};
use ringside_ring::{ShardName, name::InvalidName};

use ringside_runtime::explain::causes;
use tokio::time::timeout;

/// What the API server puts into `extra` for a token that is bound to a pod.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// How long to wait before asking an absent API server again.
const RETRY: Duration = Duration::from_secs(2);
/// How long to wait for an answer: kube's client has no bound on reading one, and a connection may die silently.
const ANSWER: Duration = Duration::from_secs(10);

/// The shard that this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub shard: ShardName,
    /// Which instance of that name: a pod made again under the same name, or a second process that was given
    /// the same one, is another shard.
    pub instance: String,
    /// The pod that its token is bound to, empty for none; nothing where that is not known.
    pub token_pod: Option<String>,
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

/// What the API server says of our token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Token {
    /// Nothing.
    #[default]
    Unknown,
    /// It is bound to no pod.
    Unbound,
    /// It belongs to this pod.
    Of(TokenPod),
}

/// The pod that a token belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenPod {
    name: String,
    uid: Option<String>,
}

impl Token {
    fn of(review: SelfSubjectReview) -> Self {
        let user = review.status.and_then(|status| status.user_info);
        let mut extra: BTreeMap<String, Vec<String>> = user.and_then(|user| user.extra).unwrap_or_default();
        let mut first = |key| extra.remove(key).and_then(|values| values.into_iter().next());
        first(POD_NAME).map_or(Self::Unbound, |name| Self::Of(TokenPod { name, uid: first(POD_UID) }))
    }

    fn pod(&self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Unbound => Some(String::new()),
            Self::Of(pod) => Some(pod.name.clone()),
        }
    }
}

/// Decides, from all sources. `kept` is the random id of a process that is no pod's, or whose token does not say so:
/// it must be the same after a restart.
///
/// # Errors
/// When they contradict each other, or name nothing that can be a shard.
pub fn decide(
    token: Token,
    flag: Option<&ShardName>,
    hostname: Option<&str>,
    kept: String,
) -> Result<Identity, IdentityError> {
    let parse = |name: &str, from| name.parse().map_err(|source| IdentityError::Name { from, source });
    let token_pod = token.pod();
    let identity = |shard, instance| Identity { shard, instance, token_pod };
    match (token, flag) {
        (Token::Of(pod), Some(flag)) if pod.name != flag.as_str() => {
            Err(IdentityError::Contradiction { flag: flag.clone(), pod: pod.name })
        }
        (Token::Of(pod), _) => Ok(identity(parse(&pod.name, "the pod's name")?, pod.uid.unwrap_or(kept))),
        (_, Some(flag)) => Ok(identity(flag.clone(), kept)),
        (_, None) => {
            let hostname = hostname.ok_or(IdentityError::Unknown)?;
            Ok(identity(parse(hostname, "the hostname")?, kept))
        }
    }
}

/// Asks the API server whose token we have, for as long as it takes to get an answer.
pub async fn ask(client: &Client) -> Token {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    loop {
        let answer = timeout(ANSWER, api.create(&PostParams::default(), &SelfSubjectReview::default())).await;
        let Ok(answer) = answer else {
            tracing::warn!(after = ?ANSWER, "the API server does not tell the pod's identity; trying again");
            continue;
        };
        match answer {
            Ok(review) => return Token::of(review),
            // Servers before 1.28 don't have the API, and a cluster may forbid it: both are answers.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                tracing::warn!(%status, "the API server does not say which pod this is; using --shard-name or the hostname");
                return Token::Unknown;
            }
            Err(error) => {
                tracing::warn!(error = causes(&error), "can't ask for the pod's identity; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use k8s_openapi::api::authentication::v1::{SelfSubjectReviewStatus, UserInfo};
    use kube::client::Body;

    use super::*;

    fn pod(name: &str) -> Token {
        Token::Of(TokenPod { name: name.into(), uid: Some("u1".into()) })
    }

    #[test]
    fn the_pod_of_the_token_comes_first_and_nothing_may_contradict_it() {
        let (a, b): (ShardName, ShardName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let decide = |token, flag, hostname| {
            super::decide(token, flag, hostname, "kept".into()).map(|it| (it.shard.to_string(), it.instance))
        };
        let is = |shard: &str, instance: &str| Ok((shard.to_owned(), instance.to_owned()));
        assert_eq!(decide(pod("a"), None, Some("node-1")), is("a", "u1"));
        assert_eq!(decide(pod("a"), Some(&a), Some("node-1")), is("a", "u1"));
        let error = decide(pod("a"), Some(&b), None).unwrap_err();
        assert!(error.to_string().contains("--shard-name says 'b'") && error.to_string().contains("pod 'a'"));
        assert_eq!(decide(Token::Unbound, Some(&b), Some("node-1")), is("b", "kept"));
        assert_eq!(decide(Token::Unknown, None, Some("host")), is("host", "kept"));
        assert_eq!(decide(Token::Of(TokenPod { name: "a".into(), uid: None }), None, None), is("a", "kept"));
        assert_eq!(decide(Token::Unbound, None, None), Err(IdentityError::Unknown));
    }

    #[test]
    fn what_the_token_is_bound_to_is_told_as_far_as_it_is_known() {
        let told = |token| decide(token, None, Some("a"), "kept".into()).unwrap().token_pod;
        assert_eq!(told(pod("a")).as_deref(), Some("a"));
        assert_eq!(told(Token::Unbound).as_deref(), Some(""));
        assert_eq!(told(Token::Unknown), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_asked_for_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn({
            let asked = asked.clone();
            move |_: http::Request<Body>| {
                let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    if first {
                        std::future::pending::<()>().await;
                    }
                    let review = serde_json::to_vec(&SelfSubjectReview::default())?;
                    Ok::<_, tower::BoxError>(http::Response::new(Body::from(review)))
                }
            }
        });
        let client = Client::new(service, "default");
        assert_eq!(timeout(3 * ANSWER, ask(&client)).await, Ok(Token::Unbound));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_pod_name_over_63_characters_is_refused_with_the_reason() {
        let error = decide(pod(&"a".repeat(64)), None, None, "kept".into()).unwrap_err().to_string();
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
        assert_eq!(Token::of(with(Some(extra))), pod("a"));
        assert_eq!(Token::of(with(None)), Token::Unbound);
    }
}
