//! Errors as sentences for people: what went wrong with the API server, and all causes, each told once.

use std::error::Error;

use kube::{core::Status, runtime::watcher};

use crate::no_answer::NoAnswer;

/// Says what went wrong with a request, without the repetitions of nested errors.
pub fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => explain_status(status),
        // It says itself whether there was no connection or no answer.
        kube::Error::Service(cause) if cause.is::<NoAnswer>() => causes(&**cause),
        kube::Error::Service(cause) => format!("the API server can't be reached: {}", causes(&**cause)),
        other => causes(other),
    }
}

/// Says what went wrong with a watch.
pub fn explain_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => explain(error),
        watcher::Error::WatchError(status) => explain_status(status),
        other => causes(other),
    }
}

/// The HTTP status of an API server's answer, if that is what the error is.
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn explain_status(status: &Status) -> String {
    match status.code {
        // The message names user, verb, resource and scope: just what a Role needs.
        403 => format!("missing permission: {}", status.message),
        401 => "the API server does not accept the credentials; check the token or kubeconfig".to_owned(),
        code => format!("the API server answered {code}: {}", status.message),
    }
}

/// The messages from outside to inside, each only where it adds something.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    with_remedy(text)
}

/// Says what to do where rustls refuses a certificate that other clients take.
pub fn with_remedy(text: String) -> String {
    let remedy = match &text {
        said if said.contains(": issue one ") => return text,
        said if said.contains("CaUsedAsEndEntity") => {
            "the API server's certificate is that of an authority (CA:TRUE), which may not serve: issue one with CA:FALSE"
        }
        said if said.contains("UnsupportedCertVersion") && said.contains("private key") => {
            "the client certificate is of X.509 version 1: issue one of version 3"
        }
        said if said.contains("UnsupportedCertVersion") => {
            "the API server's certificate is of X.509 version 1: issue one of version 3, with the name that it serves"
        }
        _ => return text,
    };
    format!("{remedy} ({text})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_named() {
        let message = r#"leases.coordination.k8s.io is forbidden: User "x" cannot list resource "leases""#;
        let status = Status::failure(message, "Forbidden").with_code(403);
        assert_eq!(explain(&kube::Error::Api(status.boxed())), format!("missing permission: {message}"));
    }

    #[test]
    fn certificates_that_rustls_refuses_have_a_remedy_once() {
        let of_client = "invalid private key: invalid peer certificate: Other(OtherError(UnsupportedCertVersion))";
        for (said, remedy) in [
            (of_client, "the client certificate is of X.509 version 1: issue one of version 3 ("),
            ("invalid peer certificate: UnsupportedCertVersion", "the API server's certificate is of X.509 version 1"),
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "(CA:TRUE), which may not serve"),
        ] {
            let told = explain(&kube::Error::Service(said.into()));
            assert!(told.contains(remedy) && told.contains(said), "{told}");
            assert_eq!(with_remedy(told.clone()), told);
        }
        assert_eq!(with_remedy("connection refused".to_owned()), "connection refused");
    }

    #[test]
    fn causes_are_told_once() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(explain(&error), "the API server can't be reached: connection refused");
    }
}
